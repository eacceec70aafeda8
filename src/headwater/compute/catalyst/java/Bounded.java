package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * A call that can make a huge value of a small number: it fails before it does.
 *
 * repeat('a', 2000000000) is a row of a few bytes, and the memory that it asks for ends the JVM of everybody.
 * So the arguments are looked at first, in the order in which the function itself would, and only once; a
 * value that would be larger than BYTES_MAX is an error of the row. The limit is a number, not what the
 * machine has left: a row that fails when it comes must fail when it goes.
 */
public final class Bounded extends TryEval {
    /** As in bounded.py. */
    public static final long BYTES_MAX = 64L << 20;

    private static final List NAMES = java.util.Arrays.asList(new Object[] {
        "array_insert", "array_repeat", "format_number", "format_string", "lpad", "printf", "repeat", "rpad",
        "sequence", "space",
    });

    private static final Pattern WIDTHS = Pattern.compile("%(?:[0-9]+\\$)?[-#+ 0,(<]*([0-9]+)?(?:\\.([0-9]+))?");
    private static final double DAY_MICROS = 86400e6;
    /** At least so many days: a bound may be too strict by a tenth, never too lax. */
    private static final double MONTH_DAYS = 28;

    private transient Expression inner;

    public Bounded(Expression child) {
        super(child);
    }

    /** Let a session mean these calls by the names of the functions. */
    public static void register(SparkSession session) {
        FunctionRegistry registry = session.sessionState().functionRegistry();
        // Spark's own are of this place; the registry is the session's, so only the session's calls change.
        for (Iterator i = Printer.list(registry.listFunction()).iterator(); i.hasNext();) {
            FunctionIdentifier name = (FunctionIdentifier) i.next();
            if (name.database().contains("builtin") && NAMES.contains(name.funcName())) {
                final Function1 plain = (Function1) registry.lookupFunctionBuilder(name).get();
                registry.registerFunction(name, (ExpressionInfo) registry.lookupFunction(name).get(),
                    new AbstractFunction1() {
                        public Object apply(Object arguments) {
                            return new Bounded((Expression) plain.apply(arguments));
                        }
                    });
            }
        }
    }

    /** A plan that says the functions themselves. */
    public static LogicalPlan without(LogicalPlan plan) {
        return (LogicalPlan) plan.transformAllExpressionsWithSubqueries(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof Bounded;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                return e instanceof Bounded ? ((Bounded) e).child() : otherwise.apply(e);
            }
        });
    }

    /** An expression whose calls of these functions are bounded. */
    public static Expression within(Expression e) {
        if (e.children().isEmpty()) {
            return e;
        }
        List children = new ArrayList();
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            children.add(within((Expression) i.next()));
        }
        Expression changed = (Expression) e.withNewChildren(Printer.seq(children));
        return isBoundless(changed) ? new Bounded(changed) : changed;
    }

    private static boolean isBoundless(Expression e) {
        return e instanceof StringRepeat || e instanceof StringSpace || e instanceof StringLPad || e instanceof StringRPad
            || e instanceof Sequence || e instanceof ArrayRepeat || e instanceof ArrayInsert || e instanceof FormatString
            || e instanceof FormatNumber;
    }

    public Object eval(InternalRow row) {
        Expression call = child();
        List arguments = Printer.list(call.children());
        Object[] values = new Object[arguments.size()];
        boolean countFirst = call instanceof ArrayRepeat;
        for (int n = 0; n < values.length; n++) {
            int at = countFirst ? values.length - 1 - n : n;
            values[at] = ((Expression) arguments.get(at)).eval(row);
            boolean mayBeNull = call instanceof FormatString ? at > 0 : call instanceof ArrayInsert ? at > 1 : countFirst && at == 0;
            if (values[at] == null && !mayBeNull) {
                return null;
            }
        }
        double bytes = bytes(call, arguments, values);
        if (bytes > BYTES_MAX) {
            String said = "requested length too large: " + name(call) + "() would make a value of about "
                + (bytes < 1e18 ? String.valueOf((long) bytes) : String.valueOf(bytes)) + " bytes; the limit is " + BYTES_MAX;
            throw new SparkRuntimeException("USER_RAISED_EXCEPTION",
                new scala.collection.immutable.Map.Map1("errorMessage", said), null, new QueryContext[0], "");
        }
        if (inner == null) {
            List references = new ArrayList();
            for (int n = 0; n < values.length; n++) {
                references.add(new BoundReference(n, ((Expression) arguments.get(n)).dataType(), true));
            }
            inner = (Expression) call.withNewChildren(Printer.seq(references));
        }
        return inner.eval(new GenericInternalRow(values));
    }

    private static String name(Expression call) {
        return call instanceof StaticInvoke ? ((StaticInvoke) call).functionName() : call.prettyName();
    }

    /** About how large the value of a call becomes; no argument that matters is null. */
    private static double bytes(Expression call, List arguments, Object[] values) {
        if (call instanceof StringRepeat) {
            return size(values[0]) * number(values[1]);
        }
        if (call instanceof StringSpace) {
            return number(values[0]);
        }
        if (call instanceof Sequence) {
            return ((Expression) arguments.get(0)).dataType().defaultSize() * steps((Expression) arguments.get(0), values);
        }
        if (call instanceof ArrayRepeat) {
            // Each is an object, then a place and a value of whole words, beside what it is made of.
            return (32 + size(values[0])) * number(values[1]);
        }
        if (call instanceof ArrayInsert) {
            return 8 * Math.abs(number(values[1]));
        }
        if (call instanceof FormatString) {
            return widths(values[0].toString());
        }
        if (call instanceof FormatNumber) {
            return values[1] instanceof Number ? number(values[1]) : 0;
        }
        return padded(values);
    }

    private static double padded(Object[] values) {
        double wanted = number(values[1]);
        if (!(values[0] instanceof UTF8String)) {
            return wanted;
        }
        UTF8String text = (UTF8String) values[0];
        UTF8String pad = (UTF8String) values[2];
        int pads = pad.numChars();
        double missing = wanted - text.numChars();
        return missing <= 0 || pads == 0 ? 0 : text.numBytes() + missing * pad.numBytes() / pads;
    }

    private static double steps(Expression start, Object[] values) {
        double distance = number(values[1]) - number(values[0]);
        if (start.dataType() instanceof IntegralType) {
            return count(distance, values.length < 3 ? 1 : number(values[2]));
        }
        double days = start.dataType() instanceof DateType ? distance : distance / DAY_MICROS;
        if (values.length < 3) {
            return count(days, 1);
        }
        if (values[2] instanceof CalendarInterval) {
            CalendarInterval step = (CalendarInterval) values[2];
            return count(days, step.months * MONTH_DAYS + step.days + step.microseconds / DAY_MICROS);
        }
        // An interval of months is an Integer, one of seconds a Long.
        double step = number(values[2]);
        return count(days, values[2] instanceof Integer ? step * MONTH_DAYS : step / DAY_MICROS);
    }

    /** Without a step there is one value, or the function itself refuses. */
    private static double count(double distance, double step) {
        return step == 0 ? 1 : Math.abs(distance / step) + 1;
    }

    private static double widths(String format) {
        double sum = 0;
        for (Matcher found = WIDTHS.matcher(format); found.find();) {
            for (int n = 1; n <= 2; n++) {
                // A width that is no int is refused by Java's Formatter.
                String width = found.group(n);
                sum += width == null || width.length() > 10 ? 0 : Double.parseDouble(width);
            }
        }
        return sum;
    }

    private static double number(Object value) {
        return ((Number) value).doubleValue();
    }

    private static double size(Object value) {
        if (value instanceof UTF8String) {
            return ((UTF8String) value).numBytes();
        }
        if (value instanceof byte[]) {
            return ((byte[]) value).length;
        }
        if (value instanceof UnsafeRow) {
            return ((UnsafeRow) value).getSizeInBytes();
        }
        if (value instanceof UnsafeArrayData) {
            return ((UnsafeArrayData) value).getSizeInBytes();
        }
        return value instanceof ArrayData ? 8.0 * ((ArrayData) value).numElements() : 8;
    }

    public boolean nullable() {
        return child().nullable();
    }

    public String prettyName() {
        return child().prettyName();
    }

    public String sql() {
        return child().sql();
    }

    public String toString() {
        return child().toString();
    }

    /**
     * A call of eval() over a row of the columns that are mentioned. What has no code at all (CodegenFallback)
     * would keep Spark from generating any for the operator, and an exploded sequence is then all there at once.
     */
    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        if (!deterministic()) {
            return child().genCode(context);
        }
        List columns = new ArrayList();
        Expression moved = moved(child(), columns);
        return called(context, code, columns, new Bounded(moved));
    }

    /** A call of an expression's eval() over a row of what these come to. */
    static ExprCode called(CodegenContext context, ExprCode code, List columns, Expression evaluated) {
        StringBuilder before = new StringBuilder();
        StringBuilder values = new StringBuilder();
        for (Iterator i = columns.iterator(); i.hasNext();) {
            Expression column = (Expression) i.next();
            ExprCode made = column.genCode(context);
            String value = made.value().toString();
            if (CodeGenerator.isPrimitiveType(column.dataType())) {
                value = CodeGenerator.boxedType(column.dataType()) + ".valueOf(" + value + ")";
            }
            before.append(made.code().toString()).append("\n");
            values.append(values.length() == 0 ? "" : ", ").append("(" + made.isNull() + ") ? null : (Object) " + value);
        }
        DataType result = evaluated.dataType();
        String call = context.addReferenceObj("evaluated", evaluated, Expression.class.getName());
        String found = context.freshName("found");
        String type = CodeGenerator.javaType(result);
        String text = before + "Object " + found + " = " + call + ".eval(new " + GenericInternalRow.class.getName()
            + "(new Object[] {" + values + "}));\nboolean " + code.isNull() + " = " + found + " == null;\n" + type + " "
            + code.value() + " = " + code.isNull() + " ? " + CodeGenerator.defaultValue(result, false) + " : ("
            + CodeGenerator.boxedType(result) + ") " + found + ";\n";
        List parts = new ArrayList();
        parts.add(text);
        return code.copy(new CodeBlock(Printer.seq(parts), Printer.seq(new ArrayList())), code.isNull(), code.value());
    }

    /** The same expression over a row of these columns, each of them once. */
    private static Expression moved(Expression e, List columns) {
        if (e instanceof BoundReference) {
            int at = columns.indexOf(e);
            if (at < 0) {
                at = columns.size();
                columns.add(e);
            }
            return new BoundReference(at, e.dataType(), true);
        }
        if (e.children().isEmpty()) {
            return e;
        }
        List children = new ArrayList();
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            children.add(moved((Expression) i.next(), columns));
        }
        return (Expression) e.withNewChildren(Printer.seq(children));
    }

    public Expression withNewChildInternal(Expression child) {
        return new Bounded(child);
    }
}
