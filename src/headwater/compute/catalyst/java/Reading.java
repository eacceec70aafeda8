package headwater;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TypeCheckResult;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeBlock;
import org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * headwater_read('date', s): a text as a value of a type of PostgreSQL's, or an error of the row.
 *
 * A function of its argument alone: no setting and no time zone of a session has a part in it.
 */
public final class Reading extends Expression implements java.io.Serializable {
    private static final String NAME = "headwater_read";

    private final Reader reader;
    private final Expression child;

    public Reading(Reader reader, Expression child) {
        this.reader = reader;
        this.child = child;
    }

    /** Make the function known to a session. */
    public static void register(SparkSession session, String grammar) throws Exception {
        final Grammar known = new Grammar(grammar);
        session.sessionState().functionRegistry().createOrReplaceTempFunction(NAME, new AbstractFunction1() {
            public Object apply(Object arguments) {
                List given = Printer.list((Seq) arguments);
                if (given.size() != 2 || !(given.get(0) instanceof Literal)) {
                    throw new IllegalArgumentException(NAME + "() takes the name of a type and a text");
                }
                return new Reading(new Reader(((Literal) given.get(0)).value().toString(), known), (Expression) given.get(1));
            }
        }, "scala_udf");
    }

    public TypeCheckResult checkInputDataTypes() {
        if (child.dataType() instanceof StringType) {
            return super.checkInputDataTypes();
        }
        return new TypeCheckResult.TypeCheckFailure(NAME + "() takes a text");
    }

    public Object eval(InternalRow row) {
        return reader.apply(child.eval(row));
    }

    /** Generated code knows Spark's classes and Java's, none of ours. */
    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        ExprCode made = child.genCode(context);
        String call = context.addReferenceObj("reader", reader, java.util.function.Function.class.getName());
        String found = context.freshName("found");
        String text = made.code().toString() + "\nObject " + found + " = (" + made.isNull() + ") ? null : " + call + ".apply("
            + made.value() + ");\nboolean " + code.isNull() + " = " + found + " == null;\n"
            + CodeGenerator.javaType(dataType()) + " " + code.value() + " = " + code.isNull() + " ? "
            + CodeGenerator.defaultValue(dataType(), false) + " : (" + CodeGenerator.boxedType(dataType()) + ") " + found + ";\n";
        List parts = new ArrayList();
        parts.add(text);
        return code.copy(new CodeBlock(Printer.seq(parts), Printer.seq(new ArrayList())), code.isNull(), code.value());
    }

    public boolean foldable() {
        return child.foldable();
    }

    public boolean nullable() {
        return child.nullable();
    }

    public DataType dataType() {
        return reader.dataType();
    }

    public Seq children() {
        return Printer.seq(Collections.singletonList(child));
    }

    public TreeNode withNewChildrenInternal(IndexedSeq changed) {
        return new Reading(reader, (Expression) changed.apply(0));
    }

    public String prettyName() {
        return NAME;
    }

    public String sql() {
        return NAME + "('" + reader.type() + "', " + child.sql() + ")";
    }

    public String toString() {
        return NAME + "(" + reader.type() + ", " + child + ")";
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) reader : child;
    }

    public boolean canEqual(Object other) {
        return other instanceof Reading;
    }

    public boolean equals(Object other) {
        return other instanceof Reading && reader.type().equals(((Reading) other).reader.type())
            && child.equals(((Reading) other).child);
    }

    public int hashCode() {
        return 31 * reader.type().hashCode() + child.hashCode();
    }
}
