package headwater;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.DateAdd;
import org.apache.spark.sql.catalyst.expressions.DateSub;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.MakeDate;
import org.apache.spark.sql.catalyst.expressions.MultiplyDTInterval;
import org.apache.spark.sql.catalyst.expressions.TimestampAddInterval;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * The date, timestamp or interval that an expression comes to, if it is one that we hold; else an error of the row.
 *
 * Dates and timestamps are of the years 1 to 9999, in UTC. Spark's arithmetic of dates wraps around, but never to
 * one of these: the sum of one of them and any integer is further off. Its arithmetic of the others fails in no words
 * of its own where a long is too small: what an operation of values says is left apart from what its operands say.
 * What PostgreSQL does not hold either is said in its words.
 */
final class Held {
    private static final String RANGE = ": years go from 1 to 9999 here";
    private static final long DAY = 86400000000L;

    /** The first day there is and the last, as days since 1970; then PostgreSQL's. */
    private static final int FIRST = -719162;
    private static final int LAST = 2932896;
    private static final int POSTGRES_FIRST = -2440588;
    private static final int POSTGRES_LAST = 2145042905;

    private final List operands;
    private final Expression operation;

    Held(Expression found) {
        boolean isOperation = found instanceof DateAdd || found instanceof DateSub || found instanceof MakeDate
            || found instanceof TimestampAddInterval || found instanceof MultiplyDTInterval;
        operands = isOperation ? Printer.list(found.children()) : Collections.singletonList(found);
        List moved = new ArrayList();
        for (int n = 0; n < operands.size(); n++) {
            moved.add(new BoundReference(n, ((Expression) operands.get(n)).dataType(), true));
        }
        operation = isOperation ? (Expression) found.withNewChildren(Printer.seq(moved)) : (Expression) moved.get(0);
    }

    static boolean isType(DataType type) {
        return type instanceof DateType || type instanceof TimestampType || type instanceof TimestampNTZType
            || type instanceof DayTimeIntervalType;
    }

    List operands() {
        return operands;
    }

    /** What is done with the values of the operands. */
    Expression operation() {
        return operation;
    }

    Object eval(InternalRow row) {
        Object[] values = new Object[operands.size()];
        for (int n = 0; n < values.length; n++) {
            values[n] = ((Expression) operands.get(n)).eval(row);
            if (values[n] == null) {
                return null;
            }
        }
        Object value;
        try {
            value = operation.eval(new GenericInternalRow(values));
        } catch (RuntimeException e) {
            throw operation instanceof MakeDate ? noDate(values) : failed(false);
        }
        if (operation instanceof MakeDate && values[0].equals(Integer.valueOf(0))) {
            throw noDate(values);
        }
        check(value);
        return value;
    }

    private void check(Object value) {
        if (value instanceof Integer) {
            int day = ((Integer) value).intValue();
            if (day < FIRST || day > LAST) {
                throw failed(day >= POSTGRES_FIRST && day <= POSTGRES_LAST);
            }
        } else if (!(operation.dataType() instanceof DayTimeIntervalType)) {
            long micros = ((Long) value).longValue();
            if (micros < FIRST * DAY || micros >= (LAST + 1) * DAY) {
                throw failed(micros >= POSTGRES_FIRST * DAY);
            }
        }
    }

    private RuntimeException failed(boolean isPostgres) {
        DataType type = operation.dataType();
        String name = type instanceof DateType ? "date" : type instanceof DayTimeIntervalType ? "interval" : "timestamp";
        return Grammar.failed(name + " out of range" + (isPostgres ? RANGE : ""));
    }

    private static RuntimeException noDate(Object[] values) {
        return Grammar.failed(String.format("date field value out of range: %d-%02d-%02d", values));
    }
}
