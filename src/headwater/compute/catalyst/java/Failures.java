package headwater;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BindReferences$;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;

/** Expressions that may fail: as a function that is NULL where they do, and with what they said. */
public final class Failures {
    /** Make a function of this name known to a session: its argument, or NULL where that fails. */
    public void register(SparkSession session, String name) {
        session.sessionState().functionRegistry().createOrReplaceTempFunction(name, new AbstractFunction1() {
            public Object apply(Object arguments) {
                if (((Seq) arguments).size() != 1) {
                    throw new IllegalArgumentException("a function of one argument");
                }
                // In a struct: the optimizer pushes a TryEval into the branches of an IF right below it, and
                // the condition is then evaluated outside.
                List parts = new ArrayList();
                parts.add(Literal$.MODULE$.apply("v"));
                parts.add(((Seq) arguments).head());
                Expression tried = new Tried(new CreateNamedStruct(CollectionConverters.asScala(parts).toSeq()));
                return new GetStructField(tried, 0, scala.Option.apply("v"));
            }
        }, "scala_udf");
    }

    /**
     * What the one column of a frame says for each of these rows: {condition, class, message}, or null where
     * it does not fail. The frame is over a relation with the columns of the rows; no job is run over it.
     */
    public List messages(Dataset frame, Dataset rows) {
        LogicalPlan plan = frame.queryExecution().optimizedPlan();
        if (!(plan instanceof Project) || !((Project) plan).child().children().isEmpty()) {
            throw new IllegalStateException("not one projection of a relation: " + plan);
        }
        Project project = (Project) plan;
        Expression bound = (Expression) BindReferences$.MODULE$.bindReference(
            (Expression) project.projectList().head(),
            org.apache.spark.sql.catalyst.expressions.package$.MODULE$.AttributeSeq(project.child().output()),
            false);
        InternalRow[] found = rows.queryExecution().executedPlan().executeCollect();
        List result = new ArrayList();
        for (int n = 0; n < found.length; n++) {
            result.add(failure(bound, found[n]));
        }
        return result;
    }

    private static String[] failure(Expression bound, InternalRow row) {
        try {
            Tried.anew(bound).eval(row);
            return null;
        } catch (Exception e) {
            String condition = e instanceof SparkThrowable ? ((SparkThrowable) e).getCondition() : null;
            String message = String.valueOf(e.getMessage());
            return new String[] {condition == null ? "" : condition, e.getClass().getName(), message};
        }
    }
}
