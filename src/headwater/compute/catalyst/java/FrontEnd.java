package headwater;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.CompoundPlanStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ParsedStatement;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.runtime.AbstractPartialFunction;

/** What Python calls. */
public final class FrontEnd {
    /** The analysed plan of a DataFrame as JSON, or {"refused": ...}. */
    public String export(Dataset frame, Map relations) throws Exception {
        return export(frame, relations, Collections.EMPTY_MAP);
    }

    /** The same, some leaves of the plan (see Outside.java) standing for collections of ours. */
    public String export(Dataset frame, Map relations, Map outside) throws Exception {
        return Exporter.export(
            (SparkSession) frame.sparkSession(), Bounded.without(frame.queryExecution().analyzed()), relations, outside);
    }

    /** Let a session refuse to make huge values of small numbers. */
    public void bound(SparkSession session) {
        Bounded.register(session);
    }

    /** Let a session know PostgreSQL's arithmetic of numerics. */
    public void numerics(SparkSession session) {
        Numeric.register(session);
    }

    /** Let a session read texts as PostgreSQL does, by this grammar. */
    public void reading(SparkSession session, String grammar) throws Exception {
        Reading.register(session, grammar);
    }

    /** Let a session know PostgreSQL's functions of one value. */
    public void postgres(SparkSession session) {
        Postgres.register(session);
    }

    /** Make a relation without rows known to a session; its columns are DDL. */
    public void relation(SparkSession session, String name, String columns) {
        RDD none = new JavaSparkContext(session.sparkContext()).emptyRDD().rdd();
        // A relation of which Spark knew that it is empty would be planned away.
        session.internalCreateDataFrame(none, StructType.fromDDL(columns), false).createOrReplaceTempView(name);
    }

    /** The first of these settings that is another in a session, or null. */
    public String otherSetting(SparkSession session, Map wanted) {
        for (Iterator i = wanted.entrySet().iterator(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            if (!each.getValue().equals(session.conf().get((String) each.getKey()))) {
                return (String) each.getKey();
            }
        }
        return null;
    }

    /** The name of a command that a text is, or has in it; null: it is a query. */
    public String command(SparkSession session, String text) throws Exception {
        return command(session.sessionState().sqlParser().parsePlan(text));
    }

    private static String command(LogicalPlan plan) {
        if (plan instanceof Command || plan instanceof ParsedStatement || plan instanceof CompoundPlanStatement) {
            return plan.nodeName();
        }
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            String found = command((LogicalPlan) i.next());
            if (found != null) {
                return found;
            }
        }
        return null;
    }

    /** Why a query cannot be run as its text says (AsText.java): construct, reason, hint, line, column; or null. */
    public Object[] openAsText(Dataset frame, List ordered, List rounded) {
        try {
            new AsText(ordered, rounded).require(frame.queryExecution().analyzed());
            return null;
        } catch (Refusal refusal) {
            return new Object[] {refusal.construct, refusal.reason, refusal.hint,
                Integer.valueOf(refusal.line), Integer.valueOf(refusal.column)};
        }
    }

    /** What is registered in one session and not in the other, by its names, in both sessions. */
    public List adopt(SparkSession from, SparkSession into) {
        return UserFunctions.adopt(from, into);
    }

    /** The name of a user's function that a plan calls, or null. */
    public String userFunction(Dataset frame) {
        List names = new ArrayList();
        users(frame.queryExecution().analyzed(), names);
        return names.isEmpty() ? null : (String) names.get(0);
    }

    private static void users(LogicalPlan plan, final List names) {
        plan.transformExpressions(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                if (e instanceof UserDefinedExpression) {
                    names.add(((UserDefinedExpression) e).name());
                }
                if (e instanceof PlanExpression) {
                    users((LogicalPlan) ((PlanExpression) e).plan(), names);
                }
                return false;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                isDefinedAt(e);
                return otherwise.apply(e);
            }
        });
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            users((LogicalPlan) i.next(), names);
        }
    }

    /** The one-part names that a query may mean as relations, in lower case; some may be its own CTEs. */
    public List relations(SparkSession session, String query) throws Exception {
        final TreeSet names = new TreeSet();
        collect(session.sessionState().sqlParser().parsePlan(query), names);
        return new ArrayList(names);
    }

    private static void collect(LogicalPlan plan, final TreeSet names) {
        if (plan instanceof UnresolvedRelation) {
            List parts = Printer.list(((UnresolvedRelation) plan).multipartIdentifier());
            if (parts.size() == 1) {
                names.add(((String) parts.get(0)).toLowerCase(java.util.Locale.ROOT));
            }
        }
        plan.transformExpressions(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                if (e instanceof PlanExpression) {
                    collect((LogicalPlan) ((PlanExpression) e).plan(), names);
                }
                return false;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                isDefinedAt(e);
                return otherwise.apply(e);
            }
        });
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            collect((LogicalPlan) i.next(), names);
        }
        // A WITH keeps its definitions beside its children.
        for (Iterator i = Printer.list(plan.innerChildren()).iterator(); i.hasNext();) {
            Object inner = i.next();
            if (inner instanceof LogicalPlan) {
                collect((LogicalPlan) inner, names);
            }
        }
    }
}
