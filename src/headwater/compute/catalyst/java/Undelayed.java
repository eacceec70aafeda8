package headwater;

import java.lang.reflect.Field;
import java.net.SocketException;
import java.util.List;
import py4j.DefaultGatewayServerListener;
import py4j.GatewayServer;
import py4j.Py4JServerConnection;

/**
 * Lets no connection of the gateway wait with what it has to say.
 *
 * An answer of more than 8 KB is sent in pieces, and TCP keeps the last one back until the first is
 * acknowledged, which Linux puts off for 40 ms.
 */
public final class Undelayed extends DefaultGatewayServerListener {
    /** Those that there are, and those to come; returns how many there are. */
    public int install(GatewayServer server) throws ReflectiveOperationException {
        server.addListener(this);
        Field field = GatewayServer.class.getDeclaredField("connections");
        field.setAccessible(true);
        Object[] connections = ((List) field.get(server)).toArray();
        for (int n = 0; n < connections.length; n++) {
            connectionStarted((Py4JServerConnection) connections[n]);
        }
        return connections.length;
    }

    public void connectionStarted(Py4JServerConnection connection) {
        try {
            connection.getSocket().setTcpNoDelay(true);
        } catch (SocketException gone) {
            // It has ended: nobody waits for it.
        }
    }
}
