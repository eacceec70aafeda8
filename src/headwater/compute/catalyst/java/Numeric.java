package headwater;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkArithmeticException;
import org.apache.spark.SparkRuntimeException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Arithmetic of numerics as PostgreSQL has it, in a type that was chosen before; numerics.py says what each means.
 *
 * The last four arguments of what makes a numeric are literals: precision and scale of its type, what is said
 * if a value does not fit, and whether it may be rounded to the scale. What does not fit is an error of the row.
 */
public final class Numeric extends Expression implements java.io.Serializable {
    private static final String PREFIX = "headwater_";
    private static final String[] NAMES = {"total", "difference", "product", "remainder", "quotient", "fitted", "quotient_scale", "scale"};
    /** How many operands each has. */
    private static final int[] OPERANDS = {2, 2, 2, 2, 4, 1, 4, 1};
    private static final int TOTAL = 0;
    private static final int DIFFERENCE = 1;
    private static final int PRODUCT = 2;
    private static final int REMAINDER = 3;
    private static final int QUOTIENT = 4;
    private static final int FITTED = 5;
    private static final int QUOTIENT_SCALE = 6;

    /** PostgreSQL's: significant digits of a quotient, and decimal digits in one of its own digits. */
    private static final int SIGNIFICANT = 16;
    private static final int GROUP = 4;
    private static final int SCALE_MAX = 1000;
    /** As in numerics.py: a scale that is not known. */
    private static final int UNKNOWN = 99;

    private final int kind;
    private final Seq children;

    public Numeric(int kind, Seq children) {
        this.kind = kind;
        this.children = children;
    }

    /** Make the functions known to a session; doing it again does no harm. */
    public static void register(SparkSession session) {
        for (int n = 0; n < NAMES.length; n++) {
            final int kind = n;
            session.sessionState().functionRegistry().createOrReplaceTempFunction(PREFIX + NAMES[n], new AbstractFunction1() {
                public Object apply(Object arguments) {
                    return new Numeric(kind, (Seq) arguments);
                }
            }, "scala_udf");
        }
    }

    private boolean makesNumeric() {
        return kind < QUOTIENT_SCALE;
    }

    private Object constant(int n) {
        return ((Literal) children.apply(OPERANDS[kind] + n)).value();
    }

    private int precision() {
        return ((Integer) constant(0)).intValue();
    }

    private int scale() {
        return ((Integer) constant(1)).intValue();
    }

    private boolean rounds() {
        return Boolean.TRUE.equals(constant(3));
    }

    public Seq children() {
        return children;
    }

    public boolean nullable() {
        return true;
    }

    public DataType dataType() {
        return makesNumeric() ? DataTypes.createDecimalType(precision(), scale()) : DataTypes.IntegerType;
    }

    public Object eval(InternalRow row) {
        Object[] values = new Object[OPERANDS[kind]];
        for (int n = 0; n < values.length; n++) {
            values[n] = ((Expression) children.apply(n)).eval(row);
            if (values[n] == null) {
                return null;
            }
        }
        BigDecimal first = ((Decimal) values[0]).toJavaBigDecimal();
        switch (kind) {
            case TOTAL:
                return fitted(first.add(((Decimal) values[1]).toJavaBigDecimal()));
            case DIFFERENCE:
                return fitted(first.subtract(((Decimal) values[1]).toJavaBigDecimal()));
            case PRODUCT:
                return fitted(first.multiply(((Decimal) values[1]).toJavaBigDecimal()));
            case REMAINDER:
                return fitted(first.remainder(divisor(values[1])));
            case FITTED:
                return fitted(first);
            case QUOTIENT:
                return quotient(first, divisor(values[1]), number(values[2]), number(values[3]));
            case QUOTIENT_SCALE:
                return Integer.valueOf(scale(first, ((Decimal) values[1]).toJavaBigDecimal(), number(values[2]), number(values[3])));
            default:
                return Integer.valueOf(first.signum() == 0 ? 0 : Math.max(0, first.stripTrailingZeros().scale()));
        }
    }

    private static int number(Object value) {
        return ((Integer) value).intValue();
    }

    private static BigDecimal divisor(Object value) {
        BigDecimal divisor = ((Decimal) value).toJavaBigDecimal();
        if (divisor.signum() == 0) {
            throw new SparkArithmeticException("DIVIDE_BY_ZERO",
                new scala.collection.immutable.Map.Map1("config", "\"spark.sql.ansi.enabled\""), new QueryContext[0], "");
        }
        return divisor;
    }

    private Decimal quotient(BigDecimal a, BigDecimal b, int scaleA, int scaleB) {
        if (scaleA != UNKNOWN && scaleB != UNKNOWN) {
            return fitted(a.divide(b, scale(a, b, scaleA, scaleB), RoundingMode.HALF_UP));
        }
        // PostgreSQL's scale is one of these: the value is rounded only where that is finer than all of them.
        int least = scale(a, b, 0, 0);
        return fitted(a.divide(b, Math.max(least, scale()), RoundingMode.HALF_UP));
    }

    /** PostgreSQL's select_div_scale(). */
    private static int scale(BigDecimal a, BigDecimal b, int scaleA, int scaleB) {
        int weight = weight(a) - weight(b);
        if (first(a).compareTo(first(b)) <= 0) {
            weight--;
        }
        int scale = SIGNIFICANT - weight * GROUP;
        return Math.min(SCALE_MAX, Math.max(Math.max(scale, 0), Math.max(scaleA == UNKNOWN ? 0 : scaleA, scaleB == UNKNOWN ? 0 : scaleB)));
    }

    /** The place of the first digit to the base 10,000; of zero it is that before the point. */
    private static int weight(BigDecimal x) {
        return x.signum() == 0 ? 0 : Math.floorDiv(x.precision() - x.scale() - 1, GROUP);
    }

    /** The first digit to the base 10,000. */
    private static BigInteger first(BigDecimal x) {
        return x.abs().movePointLeft(GROUP * weight(x)).toBigInteger();
    }

    /** The value in its type; nothing of it is lost but what it is asked to round away. */
    private Decimal fitted(BigDecimal value) {
        BigDecimal kept = rounds() ? value.setScale(scale(), RoundingMode.HALF_UP) : value;
        BigDecimal plain = kept.signum() == 0 ? BigDecimal.ZERO : kept.stripTrailingZeros();
        int whole = plain.precision() - plain.scale();
        if (plain.scale() > scale()) {
            throw error("needs " + plain.scale() + " digits after the point, and " + scale() + " fit");
        }
        if (plain.signum() != 0 && whole > precision() - scale()) {
            throw error("has " + whole + " digits before the point, and " + (precision() - scale()) + " fit");
        }
        return Decimal$.MODULE$.apply(plain.setScale(scale()), precision(), scale());
    }

    private SparkRuntimeException error(String why) {
        return new SparkRuntimeException("USER_RAISED_EXCEPTION",
            new scala.collection.immutable.Map.Map1("errorMessage", "value out of range: " + constant(2).toString().replace("%", why)),
            null, new QueryContext[0], "");
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        List columns = new ArrayList();
        List moved = new ArrayList();
        for (int n = 0; n < children.size(); n++) {
            Expression child = (Expression) children.apply(n);
            if (n < OPERANDS[kind]) {
                columns.add(child);
                moved.add(new BoundReference(n, child.dataType(), true));
            } else {
                moved.add(child);
            }
        }
        return Bounded.called(context, code, columns, new Numeric(kind, Printer.seq(moved)));
    }

    public TreeNode withNewChildrenInternal(IndexedSeq changed) {
        return new Numeric(kind, changed.toSeq());
    }

    public String prettyName() {
        return PREFIX + NAMES[kind];
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) Integer.valueOf(kind) : children;
    }

    public boolean canEqual(Object other) {
        return other instanceof Numeric;
    }

    public boolean equals(Object other) {
        return other instanceof Numeric && kind == ((Numeric) other).kind && children.equals(((Numeric) other).children);
    }

    public int hashCode() {
        return 31 * kind + children.hashCode();
    }
}
