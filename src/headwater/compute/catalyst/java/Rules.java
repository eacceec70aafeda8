package headwater;

import org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases$;
import org.apache.spark.sql.catalyst.analysis.UpdateAttributeNullability$;
import org.apache.spark.sql.catalyst.expressions.BinaryExpression;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.optimizer.*;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.QueryPlan;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LateralJoin;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.types.DataTypes;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/**
 * The rules that make an analysed plan relational: no subquery is left that is correlated, no CTE, no
 * alias; joins carry their conditions. Each of them keeps the meaning; none replaces a function by
 * something that has no text, none evaluates the current time, none forgets the name of a relation.
 */
public final class Rules {
    private static final int ROUNDS_MAX = 100;

    private final Rule[] first;
    private final Rule[] correlated;
    private final Rule[] rewritten;
    private final Rule[] repeated;

    public Rules() throws Exception {
        first = new Rule[] {
            EliminateSubqueryAliases$.MODULE$,
            EliminateResolvedHint$.MODULE$,
            org.apache.spark.sql.catalyst.expressions.EliminatePipeOperators$.MODULE$,
            org.apache.spark.sql.catalyst.optimizer.EliminateSQLFunctionNode$.MODULE$,
            inlineEveryCte(),
            PullOutGroupingExpressions$.MODULE$,
            ReplaceDeduplicateWithAggregate$.MODULE$,
        };
        correlated = new Rule[] {
            OptimizeOneRowRelationSubquery$.MODULE$,
            PullupCorrelatedPredicates$.MODULE$,
        };
        rewritten = new Rule[] {
            RewritePredicateSubquery$.MODULE$,
            RewriteCorrelatedScalarSubquery$.MODULE$,
            RewriteLateralSubquery$.MODULE$,
            ReplaceIntersectWithSemiJoin$.MODULE$,
            ReplaceExceptWithAntiJoin$.MODULE$,
        };
        repeated = new Rule[] {
            ReorderJoin$.MODULE$,
            PushDownPredicates$.MODULE$,
            BooleanSimplification$.MODULE$,
            ColumnPruning$.MODULE$,
            CollapseProject$.MODULE$,
            CombineUnions$.MODULE$,
            RemoveNoopOperators$.MODULE$,
            PushDownLeftSemiAntiJoin$.MODULE$,
        };
    }

    /** The constructor has had two and three flags; the first has always meant "inline all of them". */
    private static Rule inlineEveryCte() throws Exception {
        java.lang.reflect.Constructor constructor = InlineCTE.class.getConstructors()[0];
        Object[] flags = new Object[constructor.getParameterTypes().length];
        for (int n = 0; n < flags.length; n++) {
            flags[n] = Boolean.valueOf(n == 0);
        }
        return (Rule) constructor.newInstance(flags);
    }

    public LogicalPlan normalise(LogicalPlan analysed) {
        LogicalPlan plan = withNullItems(applied(first, withCalls(analysed)));
        plan = outerLateral(limitsBelowProjects(plan));
        plan = applied(correlated, plan);
        plan = withSubqueriesNormalised(plan);
        plan = applied(rewritten, plan);
        for (int round = 0; round < ROUNDS_MAX; round++) {
            LogicalPlan next = applied(repeated, plan);
            if (next.fastEquals(plan)) {
                return next;
            }
            plan = next;
        }
        return plan;
    }

    private static LogicalPlan applied(Rule[] rules, LogicalPlan plan) {
        LogicalPlan result = plan;
        for (int n = 0; n < rules.length; n++) {
            result = (LogicalPlan) rules[n].apply(result);
        }
        return result;
    }

    /** Inner plans first: a rewrite that splices a plan whose own subqueries are open leaves outer(..) behind. */
    private LogicalPlan withSubqueriesNormalised(LogicalPlan plan) {
        final Rules self = this;
        return (LogicalPlan) plan.transformAllExpressions(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof PlanExpression;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                if (!(e instanceof PlanExpression)) {
                    return otherwise.apply(e);
                }
                PlanExpression subquery = (PlanExpression) e;
                return subquery.withNewPlan((QueryPlan) self.normalise((LogicalPlan) subquery.plan()));
            }
        });
    }

    /**
     * A limit over a projection over a sort, as the projection over the limit over the sort: where it is
     * decorrelated Spark looks for the sort directly below the limit, and would number rows in no order.
     */
    private static LogicalPlan limitsBelowProjects(LogicalPlan plan) {
        LogicalPlan inner = (LogicalPlan) plan.transformAllExpressions(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof PlanExpression;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                if (!(e instanceof PlanExpression)) {
                    return otherwise.apply(e);
                }
                PlanExpression subquery = (PlanExpression) e;
                return subquery.withNewPlan((QueryPlan) limitsBelowProjects((LogicalPlan) subquery.plan()));
            }
        });
        return (LogicalPlan) inner.transformDown(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object p) {
                return p instanceof GlobalLimit && ((GlobalLimit) p).child() instanceof LocalLimit
                    && ((LocalLimit) ((GlobalLimit) p).child()).child() instanceof Project
                    && ((Project) ((LocalLimit) ((GlobalLimit) p).child()).child()).child() instanceof Sort;
            }

            public Object applyOrElse(Object p, Function1 otherwise) {
                if (!isDefinedAt(p)) {
                    return otherwise.apply(p);
                }
                GlobalLimit global = (GlobalLimit) p;
                LocalLimit local = (LocalLimit) global.child();
                Project project = (Project) local.child();
                LogicalPlan limited = new GlobalLimit(global.limitExpr(), new LocalLimit(local.limitExpr(), project.child()));
                return new Project(project.projectList(), limited);
            }
        });
    }

    /**
     * LEFT JOIN LATERAL explode(..), as one ON true: without a condition Spark forgets that it is outer, and
     * loses the rows for which nothing is generated.
     */
    private static LogicalPlan outerLateral(LogicalPlan plan) {
        return (LogicalPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object p) {
                return p instanceof LateralJoin && ((LateralJoin) p).joinType() instanceof LeftOuter$
                    && ((LateralJoin) p).condition().isEmpty() && generates((LogicalPlan) ((LateralJoin) p).right().plan());
            }

            public Object applyOrElse(Object p, Function1 otherwise) {
                if (!isDefinedAt(p)) {
                    return otherwise.apply(p);
                }
                LateralJoin join = (LateralJoin) p;
                return new LateralJoin(join.left(), join.right(), join.joinType(),
                    Option.apply(Literal.create(Boolean.TRUE, DataTypes.BooleanType)));
            }
        });
    }

    private static boolean generates(LogicalPlan plan) {
        return plan.exists(new AbstractFunction1() {
            public Object apply(Object p) {
                return Boolean.valueOf(p instanceof Generate);
            }
        });
    }

    /**
     * An item of an array by its place, as NULL where the array or the place is. Spark takes it for never
     * NULL if no item ever is, and the code that it generates fails on such rows.
     */
    private static LogicalPlan withNullItems(LogicalPlan plan) {
        LogicalPlan told = (LogicalPlan) plan.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object p) {
                return p instanceof LogicalPlan;
            }

            public Object applyOrElse(Object p, Function1 otherwise) {
                return ((LogicalPlan) p).transformExpressionsUp(NULL_ITEMS);
            }
        });
        return told.fastEquals(plan) ? plan : (LogicalPlan) UpdateAttributeNullability$.MODULE$.apply(told);
    }

    private static final AbstractPartialFunction NULL_ITEMS = new AbstractPartialFunction() {
        public boolean isDefinedAt(Object e) {
            return (e instanceof GetArrayItem || e instanceof ElementAt) && !((Expression) e).nullable()
                && missing((BinaryExpression) e) != null;
        }

        public Object applyOrElse(Object e, Function1 otherwise) {
            if (!isDefinedAt(e)) {
                return otherwise.apply(e);
            }
            Expression item = (Expression) e;
            return new If(missing((BinaryExpression) e), Literal.create(null, item.dataType()), item);
        }
    };

    /** Whether the array or the place is NULL; null if neither ever is. */
    private static Expression missing(BinaryExpression item) {
        Expression array = (Expression) item.left();
        Expression place = (Expression) item.right();
        if (array.nullable() && place.nullable()) {
            return new Or(new IsNull(array), new IsNull(place));
        }
        return array.nullable() ? new IsNull(array) : place.nullable() ? new IsNull(place) : null;
    }

    /** Before any other rule, in subqueries too: rules that give columns new ids rewrite plans of any depth. */
    private static LogicalPlan withCalls(LogicalPlan plan) {
        return (LogicalPlan) plan.transformAllExpressionsWithSubqueries(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof InheritAnalysisRules && !(e instanceof AggregateFunction);
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                return isDefinedAt(e) ? Call.of((Expression) e) : otherwise.apply(e);
            }
        });
    }
}
