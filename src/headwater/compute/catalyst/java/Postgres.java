package headwater;

import java.util.Collections;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/** Functions of one argument and of its type: upper and lower case, and whether we hold it; postgres.py says what each means. */
public final class Postgres extends Expression implements java.io.Serializable {
    private static final String PREFIX = "headwater_";
    private static final String[] NAMES = {"upper", "lower", "held"};
    private static final int UPPER = 0;
    private static final int HELD = 2;

    private final int kind;
    private final Expression child;
    private transient Held held;

    public Postgres(int kind, Expression child) {
        this.kind = kind;
        this.child = child;
    }

    /** Make the functions known to a session; doing it again does no harm. */
    public static void register(SparkSession session) {
        for (int n = 0; n < NAMES.length; n++) {
            final int kind = n;
            session.sessionState().functionRegistry().createOrReplaceTempFunction(PREFIX + NAMES[n], new AbstractFunction1() {
                public Object apply(Object arguments) {
                    Seq given = (Seq) arguments;
                    if (given.size() != 1) {
                        throw new IllegalArgumentException(PREFIX + NAMES[kind] + "() takes one argument");
                    }
                    return new Postgres(kind, (Expression) given.head());
                }
            }, "scala_udf");
        }
    }

    /** What is but checked, or null. */
    static Expression checked(Expression e) {
        return e instanceof Postgres && ((Postgres) e).kind == HELD ? ((Postgres) e).child : null;
    }

    public TypeCheckResult checkInputDataTypes() {
        DataType type = child.dataType();
        if (kind == HELD ? Held.isType(type) : type instanceof StringType) {
            return super.checkInputDataTypes();
        }
        return new TypeCheckResult.TypeCheckFailure(prettyName() + "() takes no " + type.simpleString());
    }

    public Object eval(InternalRow row) {
        if (kind == HELD) {
            if (held == null) {
                held = new Held(child);
            }
            return held.eval(row);
        }
        Object value = child.eval(row);
        return value == null ? null : Cases.of((UTF8String) value, kind == UPPER);
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        if (kind == HELD) {
            Held found = new Held(child);
            return Bounded.called(context, code, found.operands(), new Postgres(kind, found.operation()));
        }
        BoundReference moved = new BoundReference(0, child.dataType(), true);
        return Bounded.called(context, code, Collections.singletonList(child), new Postgres(kind, moved));
    }

    public boolean foldable() {
        return child.foldable();
    }

    public boolean nullable() {
        return child.nullable();
    }

    public DataType dataType() {
        return child.dataType();
    }

    public Seq children() {
        return Printer.seq(Collections.singletonList(child));
    }

    public TreeNode withNewChildrenInternal(IndexedSeq changed) {
        return new Postgres(kind, (Expression) changed.apply(0));
    }

    public String prettyName() {
        return PREFIX + NAMES[kind];
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) Integer.valueOf(kind) : child;
    }

    public boolean canEqual(Object other) {
        return other instanceof Postgres;
    }

    public boolean equals(Object other) {
        return other instanceof Postgres && kind == ((Postgres) other).kind && child.equals(((Postgres) other).child);
    }

    public int hashCode() {
        return 31 * kind + child.hashCode();
    }
}
