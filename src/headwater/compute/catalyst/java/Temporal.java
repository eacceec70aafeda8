package headwater;

import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.types.*;
import scala.Option;

/**
 * Conditions on the current time, as bounds of the times at which a row is in: since <= now < until.
 *
 * A condition must compare the current timestamp, shifted by a constant number of microseconds or not,
 * with a timestamp of the row. With micros as whole numbers: now > e is now >= e + 1.
 */
public final class Temporal {
    /** A bound; "since" and "until" are its only names. */
    public final String bound;
    public final Expression timestamp;

    private Temporal(String bound, Expression timestamp) {
        this.bound = bound;
        this.timestamp = timestamp;
    }

    /** Whether the condition speaks of the current time. */
    public static boolean mentions(Expression e) {
        if (Prepared.isVolatile(e)) {
            return true;
        }
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            if (mentions((Expression) i.next())) {
                return true;
            }
        }
        return false;
    }

    /** Add the bounds that a condition says; refused if it says anything else. */
    public static void add(Expression e, List bounds) {
        if (e instanceof Call && ((Call) e).template() instanceof Between) {
            List parts = ((Call) e).parameters();
            Expression value = (Expression) parts.get(0);
            addComparison(new GreaterThanOrEqual(value, (Expression) parts.get(1)), bounds, e);
            addComparison(new LessThanOrEqual(value, (Expression) parts.get(2)), bounds, e);
        } else {
            addComparison(e, bounds, e);
        }
    }

    private static void addComparison(Expression e, List bounds, Expression whole) {
        boolean greater = e instanceof GreaterThan || e instanceof GreaterThanOrEqual;
        boolean less = e instanceof LessThan || e instanceof LessThanOrEqual;
        if (!greater && !less) {
            throw refused(whole);
        }
        boolean orEqual = e instanceof GreaterThanOrEqual || e instanceof LessThanOrEqual;
        Expression now = (Expression) e.children().head();
        Expression row = (Expression) e.children().last();
        if (!mentions(now)) {
            Expression swapped = now;
            now = row;
            row = swapped;
            greater = !greater;
        }
        if (mentions(row) || !(row.dataType() instanceof TimestampType)) {
            throw refused(whole);
        }
        long micros = -offset(now, whole);
        if (greater) {
            bounds.add(new Temporal("since", shifted(row, orEqual ? micros : micros + 1)));
        } else {
            bounds.add(new Temporal("until", shifted(row, orEqual ? micros + 1 : micros)));
        }
    }

    /** By how many microseconds an expression is after the current time. */
    private static long offset(Expression e, Expression whole) {
        if (e instanceof Call) {
            return offset(((Call) e).replacement(), whole);
        }
        if (Postgres.checked(e) != null) {
            return offset(Postgres.checked(e), whole);
        }
        if (e instanceof RuntimeReplaceable) {
            return offset(((RuntimeReplaceable) e).replacement(), whole);
        }
        if (e instanceof Cast && ((Cast) e).child().dataType().equals(e.dataType())) {
            return offset(((Cast) e).child(), whole);
        }
        if (Prepared.isVolatile(e) && e.dataType() instanceof TimestampType) {
            return 0;
        }
        if (e instanceof TimestampAddInterval) {
            Expression interval = ((TimestampAddInterval) e).interval();
            if (interval.foldable() && interval.dataType() instanceof DayTimeIntervalType) {
                Object micros = interval.eval(null);
                if (micros != null) {
                    return Math.addExact(offset(((TimestampAddInterval) e).start(), whole), ((Long) micros).longValue());
                }
            }
        }
        throw refused(whole);
    }

    private static Expression shifted(Expression row, long micros) {
        if (micros == 0) {
            return row;
        }
        Expression interval = new Literal(Long.valueOf(micros), DayTimeIntervalType.apply());
        return new TimestampAddInterval(row, interval, Option.apply("UTC"));
    }

    private static Refusal refused(Expression condition) {
        Expression now = current(condition);
        return new Refusal(now.prettyName() + "()", "a condition can only compare the current time with a timestamp of the row",
            "write it as ts > now() - INTERVAL '1' HOUR, one comparison at a time, with days or less", now.origin());
    }

    /** What of a condition that speaks of the current time is the current time. */
    private static Expression current(Expression e) {
        for (Iterator i = Printer.list(e.children()).iterator(); !Prepared.isVolatile(e) && i.hasNext();) {
            Expression child = (Expression) i.next();
            if (mentions(child)) {
                return current(child);
            }
        }
        return e;
    }
}
