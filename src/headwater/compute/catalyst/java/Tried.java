package headwater;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.TryEval;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;

/**
 * Catalyst's TryEval, which forgets all of an evaluation that failed.
 *
 * Expressions keep things from row to row: the builder of a map has its keys until the map is made, a
 * regular expression remembers the text that it was compiled of. Where one fails in the middle, TryEval
 * goes on with what is left: the next map has the keys of the one that failed, or fails an assertion. So
 * after a failure the expression is made anew, with nothing in it but what it was made of.
 */
public final class Tried extends TryEval implements CodegenFallback {
    private transient Expression fresh;

    public Tried(Expression child) {
        super(child);
    }

    public Object eval(InternalRow row) {
        if (fresh == null) {
            fresh = child();
        }
        try {
            return fresh.eval(row);
        } catch (Exception e) {
            fresh = anew(child());
            return null;
        }
    }

    /** A call of eval(), as of everything that is not generated. Janino cannot name a static method of an interface. */
    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        try {
            return (ExprCode) CodegenFallback.class
                .getMethod("doGenCode$", new Class[] {CodegenFallback.class, CodegenContext.class, ExprCode.class})
                .invoke(null, new Object[] {this, context, code});
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The same expression without what it keeps. */
    public static Expression anew(Expression used) {
        return (Expression) used.clone();
    }

    public Expression withNewChildInternal(Expression child) {
        return new Tried(child);
    }
}
