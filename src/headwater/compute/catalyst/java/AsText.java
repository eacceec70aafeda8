package headwater;

import java.util.Collection;
import java.util.Iterator;
import java.util.Locale;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;

/**
 * What an analysed query leaves open if it is run as its text says: no order of rows is fixed then.
 *
 * Refused is whatever a maintained query would be refused for, and what only our own plans make exact: an
 * answer that follows the order of rows, or a sum that is rounded on its way.
 */
public final class AsText {
    private final Collection ordered;
    private final Collection rounded;

    /** Names of functions: those that follow the order of rows, and those that round. */
    public AsText(Collection ordered, Collection rounded) {
        this.ordered = ordered;
        this.rounded = rounded;
    }

    public void require(LogicalPlan plan) {
        if (plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset || plan instanceof Tail) {
            throw open("limit", plan.origin());
        }
        if (plan instanceof Sample) {
            throw open("tablesample", plan.origin());
        }
        for (Iterator i = Printer.list(plan.expressions()).iterator(); i.hasNext();) {
            require((Expression) i.next());
        }
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            require((LogicalPlan) i.next());
        }
        // A WITH keeps its definitions beside its children.
        for (Iterator i = Printer.list(plan.innerChildren()).iterator(); i.hasNext();) {
            Object inner = i.next();
            if (inner instanceof LogicalPlan) {
                require((LogicalPlan) inner);
            }
        }
    }

    private void require(Expression e) {
        if (e instanceof PlanExpression) {
            require((LogicalPlan) ((PlanExpression) e).plan());
        }
        if (!(e instanceof OuterReference) && !(e instanceof UserDefinedExpression)) {
            Prepared.require(e);
        }
        if (e.resolved() && !(e instanceof WindowSpecDefinition) && !(e instanceof WindowFrame)) {
            Prepared.requireBinary(e.dataType(), e);
        }
        if (e instanceof AesEncrypt && !((AesEncrypt) e).iv().foldable()) {
            throw open(e.prettyName(), e.origin());
        }
        String name = e.prettyName().toLowerCase(Locale.ROOT);
        boolean overRows = e instanceof AggregateFunction || e instanceof WindowFunction;
        if (overRows && (ordered.contains(name) || (rounded.contains(name) && rounds(e)))) {
            throw open(name, e.origin());
        }
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            require((Expression) i.next());
        }
        if (e instanceof WindowExpression && !(((WindowExpression) e).windowFunction() instanceof RankLike)) {
            WindowSpecDefinition spec = ((WindowExpression) e).windowSpec();
            boolean rows = spec.frameSpecification() instanceof SpecifiedWindowFrame
                && ((SpecifiedWindowFrame) spec.frameSpecification()).frameType() instanceof RowFrame$;
            if (rows && !spec.orderSpec().isEmpty()) {
                throw open("a frame of rows", e.origin());
            }
        }
    }

    /** Of floats, or by other arithmetic than addition. */
    private static boolean rounds(Expression e) {
        boolean added = e.prettyName().endsWith("sum") || e.prettyName().endsWith("avg") || e.prettyName().equals("mean");
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            Expression given = (Expression) i.next();
            added = added && !(given.dataType() instanceof DoubleType) && !(given.dataType() instanceof FloatType);
        }
        return !added;
    }

    private static Refusal open(String what, org.apache.spark.sql.catalyst.trees.Origin origin) {
        return new Refusal("WITH RECURSIVE with " + what,
            "a recursive query is run as its text says, which leaves this open",
            "put it into a view over the recursive one", origin);
    }
}
