package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.TempResolvedColumn;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.types.DataType;
import scala.Function1;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * A call of a function that Spark replaces at run time, with its parameters as children.
 *
 * Spark's own node has only the replacement as its child; the parameters, which are its text, do not
 * follow when a rule rewrites it, and the text would then name columns that are gone. Here both are
 * children and change together: the parameters are printed, the replacement (the last child) is what
 * the text is compared with.
 */
public final class Call extends Expression {
    private final Expression template;
    private final Seq children;

    public Call(Expression template, Seq children) {
        this.template = template;
        this.children = children;
    }

    public static Call of(Expression replaced) {
        Expression replacement = ((RuntimeReplaceable) replaced).replacement();
        List parts = new ArrayList();
        for (Iterator i = CollectionConverters.asJava(((InheritAnalysisRules) replaced).parameters()).iterator(); i.hasNext();) {
            parts.add(followed((Expression) i.next(), replacement));
        }
        parts.add(replacement);
        return new Call(replaced, CollectionConverters.asScala(parts).toSeq());
    }

    /**
     * A parameter over the columns of the replacement, where the analyser has left them behind: it gives
     * new ids to the columns of a DataFrame that is joined with itself. They are known by their names; a
     * wrong guess has another meaning than the replacement, and is refused. In HAVING it also leaves what
     * it wraps columns in while it looks for them.
     */
    private static Expression followed(Expression parameter, final Expression replacement) {
        return (Expression) parameter.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof TempResolvedColumn
                    || e instanceof AttributeReference && !replacement.references().contains((AttributeReference) e);
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                if (!isDefinedAt(e)) {
                    return otherwise.apply(e);
                }
                if (e instanceof TempResolvedColumn) {
                    return ((TempResolvedColumn) e).child();
                }
                AttributeReference known = (AttributeReference) e;
                Attribute found = null;
                for (Iterator i = CollectionConverters.asJava(replacement.references().toSeq()).iterator(); i.hasNext();) {
                    Attribute each = (Attribute) i.next();
                    if (each.name().equals(known.name()) && each.dataType().equals(known.dataType())) {
                        if (found != null) {
                            return e;
                        }
                        found = each;
                    }
                }
                return found == null ? e : found;
            }
        });
    }

    public Expression template() {
        return template;
    }

    public Expression replacement() {
        return (Expression) children.apply(children.size() - 1);
    }

    public List parameters() {
        List all = new ArrayList(CollectionConverters.asJava(children));
        return all.subList(0, all.size() - 1);
    }

    public Seq children() {
        return children;
    }

    public boolean nullable() {
        return replacement().nullable();
    }

    public DataType dataType() {
        return replacement().dataType();
    }

    public Object eval(InternalRow row) {
        return replacement().eval(row);
    }

    public ExprCode doGenCode(CodegenContext context, ExprCode code) {
        throw new UnsupportedOperationException("a call is never generated");
    }

    public TreeNode withNewChildrenInternal(IndexedSeq changed) {
        return new Call(template, changed.toSeq());
    }

    public String prettyName() {
        return template.prettyName();
    }

    public int productArity() {
        return 2;
    }

    public Object productElement(int n) {
        return n == 0 ? (Object) template.getClass() : children;
    }

    public boolean canEqual(Object other) {
        return other instanceof Call;
    }

    public boolean equals(Object other) {
        return other instanceof Call
            && template.getClass() == ((Call) other).template.getClass()
            && children.equals(((Call) other).children);
    }

    public int hashCode() {
        return children.hashCode();
    }

    public String toString() {
        return "call(" + template.toString() + ")";
    }
}
