package headwater;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Generator;
import org.apache.spark.sql.catalyst.expressions.PythonFuncExpression;
import org.apache.spark.sql.catalyst.expressions.PythonUDF;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.UDFRegistration;
import org.apache.spark.sql.execution.python.UserDefinedPythonFunction;
import scala.Function1;
import scala.Option;

/**
 * The user's functions in a plan, each under a name that is its content.
 *
 * What a session calls a function says nothing in another one, and a function of DataFrame code has no
 * name at all. So a call is written as headwater_udf_ and a digest of code, types and Python: no other
 * function has that name, whoever registers what. It is registered in the session of the plan at once,
 * for the text to be read back by Checker.
 */
public final class UserFunctions {
    /** As in user_functions.py. */
    public static final String PREFIX = "headwater_udf_";

    private final SparkSession session;
    private final Map found = new TreeMap();

    public UserFunctions(SparkSession session) {
        this.session = session;
    }

    /** Refuses what is not a function of one row in Python. */
    public static void require(Expression e) {
        String name = ((UserDefinedExpression) e).name() + "()";
        if (!(e instanceof PythonFuncExpression)) {
            throw new Refusal(name, "a function of the JVM has no text", "register it from Python", e.origin());
        }
        if (e instanceof Generator) {
            throw new Refusal(name, "a table function in Python may keep what it saw of other rows, and which those are SQL leaves open",
                "return an array from a function of one row's values (udf) and explode() it", e.origin());
        }
        if (!(e instanceof PythonUDF) || !PythonUDF.isScalarPythonUDF(e)) {
            throw new Refusal(name, "an aggregating function in Python is given rows in an order that SQL leaves open",
                "apply a function of one row's values (udf) to collect_list(), which has an order here", e.origin());
        }
        if (!((PythonUDF) e).func().broadcastVars().isEmpty()) {
            throw new Refusal(name, "it refers to broadcast variables, or is larger than 1 MB; its code cannot be stored",
                "put the data into a collection and join with it", e.origin());
        }
    }

    /** The same call under the name that is kept. */
    public PythonUDF called(PythonUDF e, List children) {
        byte[] command = bytes(e.func());
        String kept = PREFIX + digest(e, command);
        if (!found.containsKey(kept)) {
            found.put(kept, new Object[] {e, command});
            ((UDFRegistration) session.udf()).registerPython(kept, new UserDefinedPythonFunction(kept, e.func(),
                e.dataType(), e.evalType(), e.udfDeterministic(), new ArrayList(), new ArrayList()));
        }
        return e.copy(kept, e.func(), e.dataType(), Printer.seq(children), e.evalType(), e.udfDeterministic(), e.resultId());
    }

    public void describe(ArrayNode into) {
        for (Iterator i = found.entrySet().iterator(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            PythonUDF function = (PythonUDF) ((Object[]) entry.getValue())[0];
            byte[] command = (byte[]) ((Object[]) entry.getValue())[1];
            into.addObject().put("called", (String) entry.getKey()).put("name", function.name())
                .put("command", Base64.getEncoder().encodeToString(command)).put("returns", function.dataType().json())
                .put("eval_type", function.evalType()).put("python", function.func().pythonVer());
        }
    }

    /** Functions that one session has and another has not, as if registered there too. */
    public static List adopt(SparkSession from, SparkSession into) {
        List names = new ArrayList();
        adopt(from.sessionState().functionRegistry(), into.sessionState().functionRegistry(), names);
        adopt(from.sessionState().tableFunctionRegistry(), into.sessionState().tableFunctionRegistry(), names);
        return names;
    }

    private static void adopt(FunctionRegistryBase from, FunctionRegistryBase into, List names) {
        for (Iterator i = Printer.list(from.listFunction()).iterator(); i.hasNext();) {
            FunctionIdentifier name = (FunctionIdentifier) i.next();
            if (!into.functionExists(name)) {
                Option info = from.lookupFunction(name);
                Option builder = from.lookupFunctionBuilder(name);
                if (info.isDefined() && builder.isDefined()) {
                    into.registerFunction(name, (ExpressionInfo) info.get(), (Function1) builder.get());
                    names.add(name.funcName());
                }
            }
        }
    }

    private static byte[] bytes(PythonFunction function) {
        List command = Printer.list(function.command());
        byte[] bytes = new byte[command.size()];
        int n = 0;
        for (Iterator i = command.iterator(); i.hasNext();) {
            bytes[n++] = ((Byte) i.next()).byteValue();
        }
        return bytes;
    }

    private static String digest(PythonUDF e, byte[] command) {
        try {
            java.security.MessageDigest digest = java.security.MessageDigest.getInstance("SHA-256");
            digest.update(command);
            String rest = e.dataType().json() + " " + e.evalType() + " " + e.func().pythonVer();
            byte[] made = digest.digest(rest.getBytes(java.nio.charset.StandardCharsets.UTF_8));
            return String.format("%064x", new Object[] {new java.math.BigInteger(1, made)}).substring(0, 32);
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
