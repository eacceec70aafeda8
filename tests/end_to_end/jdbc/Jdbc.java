import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.util.PGobject;

/** What pgjdbc and those who use it do; prints a line per fact, which the test compares. */
public class Jdbc {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", "headwater");
        // From the first execution on prepared at the server, and then in binary.
        properties.setProperty("prepareThreshold", "-1");
        try (Connection connection = DriverManager.getConnection(arguments[0], properties)) {
            metadata(connection);
            prepared(connection);
            batches(connection);
            cursors(connection);
            transactions(connection);
            forms(connection);
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData data = connection.getMetaData();
        System.out.println("product " + data.getDatabaseProductName() + " " + data.getDatabaseMajorVersion());
        try (ResultSet tables = data.getTables(null, "public", "jdbc%", new String[] {"TABLE", "VIEW"})) {
            while (tables.next()) {
                System.out.println("table " + tables.getString("TABLE_NAME") + " " + tables.getString("TABLE_TYPE") + " " + tables.getString("REMARKS"));
            }
        }
        try (ResultSet columns = data.getColumns(null, "public", "jdbc_items", "%")) {
            while (columns.next()) {
                System.out.println("column " + columns.getString("COLUMN_NAME") + " " + columns.getString("TYPE_NAME") + " " + columns.getInt("DATA_TYPE") + " " + columns.getInt("COLUMN_SIZE") + " " + columns.getString("IS_NULLABLE") + " " + columns.getString("COLUMN_DEF"));
            }
        }
        try (ResultSet keys = data.getPrimaryKeys(null, "public", "jdbc_items")) {
            while (keys.next()) {
                System.out.println("key " + keys.getString("COLUMN_NAME") + " " + keys.getInt("KEY_SEQ"));
            }
        }
        System.out.println("schemas " + count(data.getSchemas(null, "public")) + ", catalogs " + count(data.getCatalogs()) + ", types " + (count(data.getTypeInfo()) > 20) + ", indexes " + count(data.getIndexInfo(null, "public", "jdbc_items", true, false)));
    }

    static int count(ResultSet rows) throws SQLException {
        int found = 0;
        while (rows.next()) {
            found++;
        }
        rows.close();
        return found;
    }

    static void prepared(Connection connection) throws SQLException {
        String insert = "INSERT INTO jdbc_items VALUES (?, ?, ?, ?, ?)";
        try (PreparedStatement statement = connection.prepareStatement(insert)) {
            System.out.println("parameters " + statement.getParameterMetaData().getParameterCount() + " " + statement.getParameterMetaData().getParameterTypeName(3));
            statement.setLong(1, 1);
            statement.setString(2, "one");
            statement.setBigDecimal(3, new BigDecimal("12.50"));
            statement.setTimestamp(4, Timestamp.valueOf("2026-01-02 03:04:05"));
            statement.setBoolean(5, true);
            System.out.println("inserted " + statement.executeUpdate());
            statement.setLong(1, 2);
            statement.setNull(2, Types.VARCHAR);
            statement.setNull(3, Types.NUMERIC);
            statement.setNull(4, Types.TIMESTAMP);
            statement.setNull(5, Types.BOOLEAN);
            System.out.println("inserted " + statement.executeUpdate());
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT id, name, price, ok FROM jdbc_items WHERE id = ?")) {
            ResultSetMetaData about = statement.getMetaData();
            System.out.println("described " + about.getColumnTypeName(1) + " " + about.getColumnTypeName(3) + " " + about.getColumnName(4));
            for (int run = 0; run < 3; run++) {
                statement.setInt(1, 1);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    System.out.println("row " + rows.getLong(1) + " " + rows.getString(2) + " " + rows.getBigDecimal(3) + " " + rows.getBoolean(4));
                }
            }
        }
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO jdbc_items (id, name) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            statement.setLong(1, 3);
            statement.setString(2, "three");
            statement.executeUpdate();
            try (ResultSet keys = statement.getGeneratedKeys()) {
                keys.next();
                System.out.println("returned " + keys.getLong("id"));
            }
        }
    }

    static void batches(Connection connection) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO jdbc_items (id, name) VALUES (?, ?)")) {
            for (int id = 100; id < 350; id++) {
                statement.setLong(1, id);
                statement.setString(2, "n" + id);
                statement.addBatch();
            }
            System.out.println("batch " + statement.executeBatch().length);
        }
    }

    static void cursors(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("SELECT id FROM jdbc_items WHERE id >= ? ORDER BY id")) {
            statement.setFetchSize(40);
            statement.setLong(1, 100);
            System.out.println("fetched " + count(statement.executeQuery()));
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void forms(Connection connection) throws SQLException {
        UUID id = UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        PGobject document = new PGobject();
        document.setType("jsonb");
        document.setValue("{\"b\":1.50,\"a\":null}");
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO jdbc_forms VALUES (?, ?)")) {
            statement.setObject(1, id);
            statement.setObject(2, document);
            statement.executeUpdate();
            statement.setObject(1, new UUID(0, 10));
            statement.setNull(2, Types.OTHER);
            statement.executeUpdate();
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT id, doc FROM jdbc_forms WHERE id = ?")) {
            System.out.println("described " + statement.getMetaData().getColumnTypeName(1) + " " + statement.getMetaData().getColumnTypeName(2));
            for (int time = 0; time < 2; time++) {
                statement.setObject(1, id);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    System.out.println("form " + rows.getObject(1, UUID.class) + " " + (rows.getObject(1) instanceof UUID) + " " + rows.getString(2));
                }
            }
        }
    }

    static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
        try (Statement statement = connection.createStatement()) {
            statement.executeUpdate("INSERT INTO jdbc_items (id, name) VALUES (1000, 'kept')");
            Savepoint here = connection.setSavepoint();
            statement.executeUpdate("INSERT INTO jdbc_items (id, name) VALUES (1001, 'not kept')");
            connection.rollback(here);
            connection.commit();
            connection.setAutoCommit(true);
            System.out.println("after a savepoint " + count(statement.executeQuery("SELECT id FROM jdbc_items WHERE id >= 1000")));
            try {
                statement.executeQuery("SELECT nothing FROM jdbc_items");
            } catch (SQLException refused) {
                System.out.println("refused " + refused.getSQLState());
            }
        }
    }
}
