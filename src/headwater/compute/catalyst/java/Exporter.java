package headwater;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.*;
import org.apache.spark.sql.catalyst.planning.PhysicalAggregation$;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.SparkSession;
import scala.Option;
import scala.Tuple4;

/**
 * An analysed plan as JSON, operator by operator, every expression as checked text.
 *
 * What Catalyst calls things stays visible here (limit over sort, existence joins); what it becomes in
 * our own representation is decided in translate.py, which reads this. An operator that is not named
 * here is refused.
 */
public final class Exporter {
    private static final JsonNodeFactory JSON = JsonNodeFactory.instance;

    private final SparkSession session;
    private final Map relations;
    private final Map outside;
    private final Rules rules;
    private final Checker checker;
    private final Printer printer = new Printer();
    private final UserFunctions functions;

    /**
     * relations: what the session calls our collections, in lower case, to their names. outside: leaves of
     * the plan that read something else, to the names of the collections which stand for them.
     */
    public Exporter(SparkSession session, Map relations, Map outside) throws Exception {
        this.session = session;
        this.relations = relations;
        this.outside = outside;
        this.rules = new Rules();
        this.checker = new Checker(session);
        this.functions = new UserFunctions(session);
    }

    /** The whole plan, or {"refused": ...}. */
    public static String export(SparkSession session, LogicalPlan analysed, Map relations, Map outside)
            throws Exception {
        Option active = SparkSession.getActiveSession();
        // Rules and expressions read the settings of the active session of the thread.
        SparkSession.setActiveSession(session);
        try {
            return new Exporter(session, relations, outside).plan(analysed).toString();
        } catch (Refusal refusal) {
            ObjectNode answer = JSON.objectNode();
            ObjectNode told = answer.putObject("refused");
            told.put("construct", refusal.construct).put("reason", refusal.reason).put("hint", refusal.hint);
            told.put("line", refusal.line).put("column", refusal.column);
            return answer.toString();
        } finally {
            if (active.isDefined()) {
                SparkSession.setActiveSession((SparkSession) active.get());
            } else {
                SparkSession.clearActiveSession();
            }
        }
    }

    private ObjectNode plan(LogicalPlan analysed) {
        List labels = Printer.list(analysed.output());
        LogicalPlan normal = rules.normalise(analysed);
        ObjectNode answer = JSON.objectNode();
        answer.set("root", node(normal));
        ArrayNode outputs = answer.putArray("outputs");
        List columns = Printer.list(normal.output());
        for (int n = 0; n < columns.size(); n++) {
            outputs.addObject().put("label", ((Attribute) labels.get(n)).name())
                .put("name", printer.name((Attribute) columns.get(n)));
        }
        functions.describe(answer.putArray("functions"));
        return answer;
    }

    // ---- expressions over one operator's input -------------------------------------------------

    /** The texts over one set of columns, checked together at the end. */
    private final class Batch {
        final Map subqueries = new LinkedHashMap();
        final Prepared prepared = new Prepared(subqueries, functions);
        final List scope = new ArrayList();
        final List texts = new ArrayList();
        final List originals = new ArrayList();
        final int kind;

        Batch(int kind, List attributes) {
            this.kind = kind;
            for (Iterator i = attributes.iterator(); i.hasNext();) {
                scope.add(printer.renamed((Attribute) i.next()));
            }
        }

        ObjectNode expression(Expression e) {
            Expression fit = prepared.of(e);
            return described(fit, take(printer.text(fit), fit));
        }

        String take(String text, Expression fit) {
            if (!(fit instanceof Attribute)) {
                texts.add(text);
                originals.add(fit);
            }
            return text;
        }

        ObjectNode described(Expression fit, String text) {
            ObjectNode result = JSON.objectNode();
            result.put("text", text);
            result.put("type", Printer.type(fit.dataType()));
            result.put("nullable", fit.nullable());
            result.set("columns", columns(fit));
            return result;
        }

        ArrayNode columns(Expression fit) {
            TreeSet names = new TreeSet();
            for (Iterator i = Printer.list(fit.references().toSeq()).iterator(); i.hasNext();) {
                names.add(printer.name((Attribute) i.next()));
            }
            ArrayNode result = JSON.arrayNode();
            for (Iterator i = names.iterator(); i.hasNext();) {
                result.add((String) i.next());
            }
            return result;
        }

        ArrayNode expressions(List list) {
            ArrayNode result = JSON.arrayNode();
            for (Iterator i = list.iterator(); i.hasNext();) {
                result.add(expression((Expression) i.next()));
            }
            return result;
        }

        ArrayNode order(List keys) {
            ArrayNode result = JSON.arrayNode();
            for (Iterator i = keys.iterator(); i.hasNext();) {
                SortOrder key = (SortOrder) i.next();
                ObjectNode entry = result.addObject();
                entry.set("expression", expression(key.child()));
                entry.put("descending", key.direction() instanceof Descending$);
                entry.put("nulls_first", key.nullOrdering() instanceof NullsFirst$);
            }
            return result;
        }

        ArrayNode named(List outputs) {
            ArrayNode result = JSON.arrayNode();
            for (Iterator i = outputs.iterator(); i.hasNext();) {
                NamedExpression output = (NamedExpression) i.next();
                Expression value = output instanceof Alias ? ((Alias) output).child() : (Expression) output;
                ObjectNode entry = result.addObject();
                entry.set("expression", expression(value));
                entry.put("name", printer.name(output.exprId(), output.name()));
                entry.put("session_window", output.metadata().contains("spark.sessionWindow"));
            }
            return result;
        }

        /** Check everything; return the subqueries that became columns. */
        ArrayNode done() {
            List all = new ArrayList(scope);
            ArrayNode lifted = JSON.arrayNode();
            for (Iterator i = subqueries.entrySet().iterator(); i.hasNext();) {
                Map.Entry entry = (Map.Entry) i.next();
                AttributeReference column = (AttributeReference) entry.getValue();
                all.add(printer.renamed(column));
                ObjectNode one = lifted.addObject();
                one.put("kind", entry.getKey() instanceof Exists ? "exists" : "scalar");
                one.set("column", column(column));
                LogicalPlan plan = (LogicalPlan) ((PlanExpression) entry.getKey()).plan();
                one.set("plan", node(plan));
                one.set("columns", outputNames(plan));
            }
            checker.check(kind, texts, originals, all);
            return lifted;
        }
    }

    private ObjectNode column(Attribute a) {
        ObjectNode result = JSON.objectNode();
        result.put("name", printer.name(a)).put("type", Printer.type(a.dataType())).put("nullable", a.nullable());
        return result;
    }

    private ArrayNode columns(List attributes) {
        ArrayNode result = JSON.arrayNode();
        for (Iterator i = attributes.iterator(); i.hasNext();) {
            result.add(column((Attribute) i.next()));
        }
        return result;
    }

    private ArrayNode outputNames(LogicalPlan plan) {
        ArrayNode result = JSON.arrayNode();
        for (Iterator i = Printer.list(plan.output()).iterator(); i.hasNext();) {
            result.add(printer.name((Attribute) i.next()));
        }
        return result;
    }

    private Batch over(LogicalPlan child) {
        return new Batch(Checker.SCALAR, Printer.list(child.output()));
    }

    // ---- operators -----------------------------------------------------------------------------

    private ObjectNode node(LogicalPlan p) {
        if (outside.containsKey(p)) {
            return scan((String) outside.get(p), p);
        }
        if (p instanceof View) {
            return view((View) p);
        }
        if (p instanceof SubqueryAlias) {
            return node(((SubqueryAlias) p).child());
        }
        // How rows are spread over tasks, or a hint, is no part of the meaning.
        if (p instanceof RepartitionOperation || p instanceof RebalancePartitions || p instanceof ResolvedHint) {
            return node((LogicalPlan) p.children().head());
        }
        if (p instanceof LocalRelation) {
            return values((LocalRelation) p);
        }
        if (p instanceof OneRowRelation) {
            ObjectNode result = JSON.objectNode().put("node", "values");
            result.putArray("columns");
            result.putArray("rows").addArray();
            return result;
        }
        if (p instanceof Range) {
            Range range = (Range) p;
            ObjectNode result = JSON.objectNode().put("node", "range");
            result.put("start", range.start()).put("end", range.end()).put("step", range.step());
            result.set("column", column((Attribute) range.output().head()));
            return result;
        }
        if (p instanceof Filter) {
            Filter filter = (Filter) p;
            ObjectNode result = unary("filter", filter.child());
            Batch batch = over(filter.child());
            condition(batch, filter.condition(), result);
            result.set("subqueries", batch.done());
            return result;
        }
        if (p instanceof Project) {
            Project project = (Project) p;
            ObjectNode result = unary("project", project.child());
            Batch batch = over(project.child());
            result.set("outputs", batch.named(Printer.list(project.projectList())));
            result.set("subqueries", batch.done());
            return result;
        }
        if (p instanceof Join) {
            return join((Join) p);
        }
        if (p instanceof Aggregate) {
            return aggregate((Aggregate) p);
        }
        if (p instanceof Union) {
            ObjectNode result = JSON.objectNode().put("node", "union");
            ArrayNode branches = result.putArray("branches");
            for (Iterator i = Printer.list(p.children()).iterator(); i.hasNext();) {
                branches.add(ordered((LogicalPlan) i.next()));
            }
            result.set("columns", columns(Printer.list(p.output())));
            return result;
        }
        if (p instanceof Intersect || p instanceof Except) {
            ObjectNode result = JSON.objectNode().put("node", "bag");
            result.put("kind", p instanceof Intersect ? "intersect" : "except");
            result.set("left", ordered((LogicalPlan) p.children().head()));
            result.set("right", ordered((LogicalPlan) p.children().last()));
            return result;
        }
        if (p instanceof Distinct) {
            return unary("distinct", ((Distinct) p).child());
        }
        if (p instanceof Window) {
            return window((Window) p);
        }
        if (p instanceof Sort) {
            Sort sort = (Sort) p;
            ObjectNode result = unary("sort", sort.child());
            Batch batch = over(sort.child());
            result.put("global", sort.global());
            result.set("order", batch.order(Printer.list(sort.order())));
            result.set("subqueries", batch.done());
            return result;
        }
        if (p instanceof GlobalLimit) {
            GlobalLimit limit = (GlobalLimit) p;
            LogicalPlan child = limit.child();
            if (child instanceof LocalLimit && ((LocalLimit) child).limitExpr().semanticEquals(limit.limitExpr())) {
                child = ((LocalLimit) child).child();
            }
            return unary("limit", child).put("rows", number(limit.limitExpr()));
        }
        if (p instanceof Offset) {
            return unary("offset", ((Offset) p).child()).put("rows", number(((Offset) p).offsetExpr()));
        }
        if (p instanceof Generate) {
            return generate((Generate) p);
        }
        if (p instanceof Expand) {
            return expand((Expand) p);
        }
        throw unsupported(p);
    }

    /** The condition of a filter; what it says of the current time stands apart. */
    private void condition(Batch batch, Expression condition, ObjectNode result) {
        List conjuncts = new ArrayList();
        conjuncts(condition, conjuncts);
        Expression plain = null;
        List bounds = new ArrayList();
        for (Iterator i = conjuncts.iterator(); i.hasNext();) {
            Expression conjunct = (Expression) i.next();
            if (Temporal.mentions(conjunct)) {
                Temporal.add(conjunct, bounds);
            } else {
                plain = plain == null ? conjunct : new And(plain, conjunct);
            }
        }
        ArrayNode temporal = result.putArray("temporal");
        for (Iterator i = bounds.iterator(); i.hasNext();) {
            Temporal bound = (Temporal) i.next();
            ObjectNode entry = temporal.addObject().put("bound", bound.bound);
            entry.set("expression", batch.expression(bound.timestamp));
        }
        if (plain != null) {
            result.set("condition", batch.expression(plain));
        }
    }

    private ObjectNode unary(String name, LogicalPlan child) {
        ObjectNode result = JSON.objectNode().put("node", name);
        result.set("input", node(child));
        return result;
    }

    /** A node and its columns in order: what reads it goes by position. */
    private ObjectNode ordered(LogicalPlan plan) {
        ObjectNode result = JSON.objectNode();
        result.set("input", node(plan));
        result.set("columns", outputNames(plan));
        return result;
    }

    private static int number(Expression e) {
        return ((Number) e.eval(null)).intValue();
    }

    private ObjectNode view(View view) {
        String name = view.desc().identifier().table().toLowerCase(java.util.Locale.ROOT);
        Object relation = view.isTempView() ? relations.get(name) : null;
        if (relation == null) {
            return node(view.child());
        }
        requireBare(view.child());
        return scan((String) relation, view);
    }

    private ObjectNode scan(String relation, LogicalPlan p) {
        ObjectNode result = JSON.objectNode().put("node", "scan").put("relation", relation);
        ArrayNode fields = result.putArray("fields");
        for (Iterator i = Printer.list(p.output()).iterator(); i.hasNext();) {
            Attribute a = (Attribute) i.next();
            ObjectNode field = fields.addObject().put("field", a.name());
            field.set("column", column(a));
        }
        return result;
    }

    /** Rules prune the columns of a relation below its name; nothing else may have got there. */
    private static void requireBare(LogicalPlan p) {
        LogicalPlan below = p;
        while (below instanceof Project) {
            for (Iterator i = Printer.list(((Project) below).projectList()).iterator(); i.hasNext();) {
                if (!(i.next() instanceof Attribute)) {
                    throw new IllegalStateException("a rule put an expression below a relation: " + p);
                }
            }
            below = ((Project) below).child();
        }
        if (!(below instanceof LeafNode)) {
            throw new IllegalStateException("a rule put an operator below a relation: " + p);
        }
    }

    private ObjectNode values(LocalRelation relation) {
        ObjectNode result = JSON.objectNode().put("node", "values");
        List output = Printer.list(relation.output());
        result.set("columns", columns(output));
        ArrayNode rows = result.putArray("rows");
        Batch batch = new Batch(Checker.SCALAR, Collections.EMPTY_LIST);
        for (Iterator i = Printer.list(relation.data()).iterator(); i.hasNext();) {
            InternalRow row = (InternalRow) i.next();
            ArrayNode cells = rows.addArray();
            for (int n = 0; n < output.size(); n++) {
                Attribute a = (Attribute) output.get(n);
                Object value = row.isNullAt(n) ? null : row.get(n, a.dataType());
                cells.add(batch.expression(new Literal(value, a.dataType())).get("text"));
            }
        }
        batch.done();
        return result;
    }

    private ObjectNode join(Join join) {
        ObjectNode result = JSON.objectNode().put("node", "join");
        String kind = join.joinType().toString();
        result.set("left", node(join.left()));
        result.set("right", node(join.right()));
        result.set("right_columns", outputNames(join.right()));
        if (join.joinType() instanceof ExistenceJoin) {
            kind = "Existence";
            result.set("exists", column(((ExistenceJoin) join.joinType()).exists()));
        }
        result.put("kind", kind);
        List both = new ArrayList(Printer.list(join.left().output()));
        both.addAll(Printer.list(join.right().output()));
        Batch batch = new Batch(Checker.SCALAR, both);
        ArrayNode keys = result.putArray("keys");
        Expression residual = null;
        List conjuncts = new ArrayList();
        if (join.condition().isDefined()) {
            conjuncts((Expression) join.condition().get(), conjuncts);
        }
        for (Iterator i = conjuncts.iterator(); i.hasNext();) {
            Expression condition = (Expression) i.next();
            Expression comparison = condition;
            String sign = comparison instanceof EqualTo ? "=" : comparison instanceof EqualNullSafe ? "<=>" : null;
            if (condition instanceof Or) {
                comparison = unknownOrEqual((Or) condition);
                sign = comparison == null ? null : comparison.nullable() ? "=?" : "=";
            }
            ObjectNode key = sign == null ? null : key(batch, join, comparison, sign);
            if (key != null) {
                keys.add(key);
            } else {
                residual = residual == null ? condition : new And(residual, condition);
            }
        }
        if (residual != null) {
            result.set("residual", batch.expression(residual));
        }
        result.set("subqueries", batch.done());
        return result;
    }

    private static void conjuncts(Expression e, List found) {
        if (e instanceof And) {
            conjuncts(((And) e).left(), found);
            conjuncts(((And) e).right(), found);
        } else {
            found.add(e);
        }
    }

    /** a = b OR (a = b) IS NULL, which is how NOT IN arrives. */
    private static Expression unknownOrEqual(Or e) {
        Expression equal = e.left() instanceof EqualTo ? e.left() : e.right();
        Expression unknown = equal == e.left() ? e.right() : e.left();
        boolean matches = equal instanceof EqualTo && unknown instanceof IsNull
            && ((IsNull) unknown).child().semanticEquals(equal);
        return matches ? equal : null;
    }

    private ObjectNode key(Batch batch, Join join, Expression comparison, String sign) {
        Expression a = (Expression) comparison.children().head();
        Expression b = (Expression) comparison.children().last();
        if (!isOver(a, join.left())) {
            Expression swapped = a;
            a = b;
            b = swapped;
        }
        boolean sides = isOver(a, join.left()) && isOver(b, join.right());
        if (!sides || !Printer.type(a.dataType()).equals(Printer.type(b.dataType()))) {
            return null;
        }
        ObjectNode result = JSON.objectNode().put("comparison", sign);
        result.set("left", batch.expression(a));
        result.set("right", batch.expression(b));
        return result;
    }

    private static boolean isOver(Expression e, LogicalPlan side) {
        return !e.references().isEmpty() && e.references().subsetOf(side.outputSet())
            && !SubqueryExpression$.MODULE$.hasSubquery(e);
    }

    private ObjectNode aggregate(Aggregate aggregate) {
        Tuple4 parts = (Tuple4) PhysicalAggregation$.MODULE$.unapply(aggregate).get();
        LogicalPlan child = (LogicalPlan) parts._4();
        ObjectNode result = unary("aggregate", child);
        Batch input = over(child);
        List groups = Printer.list((scala.collection.Seq) parts._1());
        result.set("groups", input.named(groups));
        Batch calls = new Batch(Checker.AGGREGATE, Printer.list(child.output()));
        ArrayNode written = result.putArray("calls");
        List after = new ArrayList();
        for (Iterator i = groups.iterator(); i.hasNext();) {
            after.add(((NamedExpression) i.next()).toAttribute());
        }
        for (Iterator i = Printer.list((scala.collection.Seq) parts._2()).iterator(); i.hasNext();) {
            AggregateExpression call = (AggregateExpression) i.next();
            written.add(call(calls, call));
            after.add(call.resultAttribute());
        }
        ArrayNode lifted = input.done();
        lifted.addAll(calls.done());
        result.set("subqueries", lifted);
        Batch results = new Batch(Checker.SCALAR, after);
        result.set("results", results.named(Printer.list((scala.collection.Seq) parts._3())));
        result.set("result_subqueries", results.done());
        return result;
    }

    private ObjectNode call(Batch batch, AggregateExpression call) {
        if (call.aggregateFunction() instanceof PivotFirst) {
            return pivot(batch, call);
        }
        AggregateExpression fit = (AggregateExpression) batch.prepared.of(call);
        ObjectNode result = batch.described(fit, batch.take(printer.text(fit), fit));
        AggregateFunction function = fit.aggregateFunction();
        result.put("name", printer.name(fit.resultId(), function.prettyName()));
        result.put("function", function.prettyName());
        result.put("distinct", fit.isDistinct());
        result.put("ignore_nulls", ignoresNulls(function));
        result.set("arguments", arguments(function));
        if (fit.filter().isDefined()) {
            result.set("filter", scalar((Expression) fit.filter().get()));
        }
        return result;
    }

    /** The parts of a call whose whole text is checked. */
    private ArrayNode arguments(Expression function) {
        ArrayNode result = JSON.arrayNode();
        for (Iterator i = Printer.list(function.children()).iterator(); i.hasNext();) {
            result.add(scalar((Expression) i.next()));
        }
        return result;
    }

    private ObjectNode scalar(Expression e) {
        return new Batch(Checker.SCALAR, Collections.EMPTY_LIST).described(e, printer.text(e));
    }

    /** Of PIVOT: the value of a column for each of some values of another; its lowering is ours. */
    private ObjectNode pivot(Batch batch, AggregateExpression call) {
        PivotFirst pivot = (PivotFirst) call.aggregateFunction();
        ObjectNode result = JSON.objectNode().put("function", "pivot_first");
        result.put("name", printer.name(call.resultId(), "pivot"));
        result.put("type", Printer.type(pivot.dataType()));
        result.set("pivot", scalar(batch.prepared.of(pivot.pivotColumn())));
        result.set("value", scalar(batch.prepared.of(pivot.valueColumn())));
        ArrayNode values = result.putArray("values");
        for (Iterator i = Printer.list(pivot.pivotColumnValues()).iterator(); i.hasNext();) {
            values.add(printer.text(new Literal(i.next(), pivot.pivotColumn().dataType())));
        }
        return result;
    }

    private static boolean ignoresNulls(Expression function) {
        return (function instanceof First && ((First) function).ignoreNulls())
            || (function instanceof Last && ((Last) function).ignoreNulls())
            || (function instanceof AnyValue && ((AnyValue) function).ignoreNulls())
            || (function instanceof OffsetWindowFunction && ((OffsetWindowFunction) function).ignoreNulls());
    }

    private ObjectNode window(Window window) {
        ObjectNode result = unary("window", window.child());
        Batch batch = over(window.child());
        result.set("partition", batch.expressions(Printer.list(window.partitionSpec())));
        result.set("order", batch.order(Printer.list(window.orderSpec())));
        ArrayNode calls = result.putArray("calls");
        for (Iterator i = Printer.list(window.windowExpressions()).iterator(); i.hasNext();) {
            NamedExpression output = (NamedExpression) i.next();
            WindowExpression over = (WindowExpression) batch.prepared.of(((Alias) output).child());
            Expression function = over.windowFunction();
            boolean aggregate = function instanceof AggregateExpression;
            Expression named = aggregate ? ((AggregateExpression) function).aggregateFunction() : function;
            String text = printer.text(function);
            if (function instanceof FrameLessOffsetWindowFunction && ignoresNulls(function)) {
                text = text + " IGNORE NULLS";
            }
            String frame = ((Expression) over.windowSpec().frameSpecification()).sql();
            ObjectNode entry = batch.described(over, text);
            entry.put("name", printer.name(output.exprId(), output.name()));
            entry.put("function", named.prettyName());
            entry.put("frame", frame);
            entry.put("ignore_nulls", ignoresNulls(named));
            entry.set("arguments", arguments(named));
            if (aggregate && ((AggregateExpression) function).filter().isDefined()) {
                entry.set("filter", scalar((Expression) ((AggregateExpression) function).filter().get()));
            }
            calls.add(entry);
            batch.take(text + " OVER (" + specification(over.windowSpec()) + " " + frame + ")", over);
        }
        result.set("subqueries", batch.done());
        return result;
    }

    private String specification(WindowSpecDefinition spec) {
        List partition = new ArrayList();
        for (Iterator i = Printer.list(spec.partitionSpec()).iterator(); i.hasNext();) {
            partition.add(printer.text((Expression) i.next()));
        }
        List order = new ArrayList();
        for (Iterator i = Printer.list(spec.orderSpec()).iterator(); i.hasNext();) {
            order.add(printer.text((Expression) i.next()));
        }
        return (partition.isEmpty() ? "" : "PARTITION BY " + String.join(", ", partition) + " ")
            + (order.isEmpty() ? "" : "ORDER BY " + String.join(", ", order));
    }

    private ObjectNode generate(Generate generate) {
        ObjectNode result = unary("generate", generate.child());
        Batch batch = new Batch(Checker.GENERATOR, Printer.list(generate.child().output()));
        Expression generator = batch.prepared.of((Expression) generate.generator());
        String call = (checker.isInFromAlone(generator) ? Checker.LATERAL : "") + printer.text(generator);
        result.set("generator", batch.described(generator, batch.take(call, generator)));
        // In the child's names or the output's; a generator's output is always its own. An outer one has NULLs.
        result.set("outputs", columns(Printer.list(generate.nullableOutput())));
        result.put("outer", generate.outer());
        ArrayNode kept = result.putArray("kept");
        for (Iterator i = Printer.list(generate.requiredChildOutput()).iterator(); i.hasNext();) {
            kept.add(printer.name((Attribute) i.next()));
        }
        result.set("subqueries", batch.done());
        return result;
    }

    private ObjectNode expand(Expand expand) {
        ObjectNode result = unary("expand", expand.child());
        Batch batch = over(expand.child());
        ArrayNode projections = result.putArray("projections");
        for (Iterator i = Printer.list(expand.projections()).iterator(); i.hasNext();) {
            projections.add(batch.expressions(Printer.list((scala.collection.Seq) i.next())));
        }
        result.set("columns", columns(Printer.list(expand.output())));
        result.set("subqueries", batch.done());
        return result;
    }

    private static Refusal unsupported(LogicalPlan p) {
        String name = p.nodeName();
        if (name.startsWith("UnionLoop")) {
            return new Refusal("WITH RECURSIVE", "recursive queries are not supported yet", "", p.origin());
        }
        if (name.startsWith("Sample")) {
            return new Refusal("TABLESAMPLE", "a sample is not deterministic",
                "filter by a hash of a column instead", p.origin());
        }
        if (name.startsWith("MapIn") || name.startsWith("FlatMap")) {
            return new Refusal(name, "which rows a function in Python is given together, and in which order, is left open",
                "use a function of one row's values (udf), also of collect_list() of a group", p.origin());
        }
        if (p instanceof LeafNode) {
            return new Refusal(name, "it reads data that is not a collection of ours",
                "read relations by their names", p.origin());
        }
        return new Refusal(name, "this operator is not supported", "", p.origin());
    }
}
