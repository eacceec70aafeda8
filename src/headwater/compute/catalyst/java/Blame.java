package headwater;

import org.apache.spark.SparkThrowable;

/**
 * Whom to blame for a failed query: the values of a row, or whatever happened around it.
 *
 * An exception knows where it was raised. From there outwards, the first frame that is Spark's own says
 * what was being done: evaluating an expression of values, or reading, sending, sorting, waiting for
 * somebody. Generated code is a frame of expressions; what it calls to get its rows has frames of its own
 * above it. Java's errors (no memory, no stack, no class) are never blamed on a row: whether they happen
 * depends on more than the row.
 */
public final class Blame {
    private static final int CAUSES_MAX = 32;

    /** Where values are computed. */
    private static final String[] EVALUATING = {
        "org.apache.spark.sql.catalyst.expressions.",
        "org.apache.spark.sql.catalyst.util.",
        "org.apache.spark.sql.catalyst.csv.",
        "org.apache.spark.sql.catalyst.json.",
        "org.apache.spark.sql.catalyst.xml.",
        "org.apache.spark.sql.types.",
        "org.apache.spark.types.variant.",
        "org.apache.spark.unsafe.array.",
        "org.apache.spark.unsafe.types.",
        "headwater.Bounded",
        "headwater.Numeric",
        "headwater.Grammar",
        "headwater.Moments",
        "headwater.Reader",
        "headwater.Cases",
        "headwater.Held",
        "headwater.Postgres",
    };

    /** Where exceptions are only made, for whoever raises them; nor does it count that Java compiled something. */
    private static final String[] SAYING = {
        "org.apache.spark.sql.errors.",
        "org.apache.spark.SparkException",
        "org.apache.spark.SparkErrorUtils",
        "org.apache.spark.util.SparkErrorUtils",
    };

    private static final String COMPILING = "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator";

    /** {condition, class, message, SQLSTATE} of what a row's values caused; null if it was something else. */
    public String[] of(Throwable failure) {
        Throwable found = null;
        Throwable cause = failure;
        for (int n = 0; cause != null && n < CAUSES_MAX; n++) {
            if (cause instanceof Error) {
                return null;
            }
            if (found == null && isOfValues(cause.getStackTrace())) {
                found = cause;
            }
            cause = cause.getCause();
        }
        return found == null ? null : told(found);
    }

    private static String[] told(Throwable cause) {
        boolean known = cause instanceof SparkThrowable;
        String condition = known ? ((SparkThrowable) cause).getCondition() : null;
        String state = known ? ((SparkThrowable) cause).getSqlState() : null;
        return new String[] {condition == null ? "" : condition, cause.getClass().getName(),
            String.valueOf(cause.getMessage()), state == null ? "" : state};
    }

    private static boolean isOfValues(StackTraceElement[] frames) {
        for (int n = 0; n < frames.length; n++) {
            String name = frames[n].getClassName();
            if (startsWith(name, SAYING)) {
                continue;
            }
            if (startsWith(name, EVALUATING)) {
                return !name.startsWith(COMPILING);
            }
            if (name.startsWith("org.apache.spark.") || name.startsWith("headwater.")) {
                return false;
            }
        }
        return false;
    }

    private static boolean startsWith(String name, String[] prefixes) {
        for (int n = 0; n < prefixes.length; n++) {
            if (name.startsWith(prefixes[n])) {
                return true;
            }
        }
        return false;
    }
}
