package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.MultiAlias;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.None$;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractPartialFunction;

/**
 * Reads every text back and compares it with what was meant: the proof that nothing was lost.
 *
 * A text is parsed and analysed over a relation whose columns have the printed names and the original
 * ids. Both sides are then made plain (run-time replacements made, casts to the same type dropped,
 * constants folded) and must be canonically equal. What is not is refused; so an unknown loss in the
 * printing, in this Spark or another, is an error and not a wrong row.
 */
public final class Checker {
    private final SparkSession session;

    public Checker(SparkSession session) {
        this.session = session;
    }

    /** How a text is embedded to be analysed. */
    public static final int SCALAR = 0;
    public static final int AGGREGATE = 1;
    public static final int GENERATOR = 2;

    /** How the text of a generator begins that Spark knows in FROM alone. */
    public static final String LATERAL = "LATERAL ";

    private static final String MARK = "headwater_check_";

    /** Compare texts with the expressions they were printed from, all over the same columns. */
    public void check(int kind, List texts, List originals, List scope) {
        if (texts.isEmpty()) {
            return;
        }
        List found;
        try {
            found = analysed(kind, texts, originals, scope);
        } catch (Exception together) {
            if (texts.size() == 1) {
                throw lost((String) texts.get(0), (Expression) originals.get(0), message(together));
            }
            for (int n = 0; n < texts.size(); n++) {
                check(kind, texts.subList(n, n + 1), originals.subList(n, n + 1), scope);
            }
            throw lost(texts.toString(), (Expression) originals.get(0), message(together));
        }
        for (int n = 0; n < texts.size(); n++) {
            Expression original = (Expression) originals.get(n);
            Expression read = (Expression) found.get(n);
            if (read == null || !same(read, original)) {
                String shown = read == null ? "nothing" : plain(read).toString();
                throw lost((String) texts.get(n), original, "it reads back as " + shown + " where "
                    + plain(original) + " was meant");
            }
        }
    }

    private static String message(Exception e) {
        String text = String.valueOf(e.getMessage()).trim();
        int end = text.indexOf('\n');
        return end < 0 ? text : text.substring(0, end);
    }

    private static Refusal lost(String text, Expression original, String why) {
        return new Refusal(text, "its text does not say what it means: " + why,
            "this function cannot be stored; say it in another way", original.origin());
    }

    /** Whether Spark knows a generator in FROM alone, not in LATERAL VIEW or a list of expressions. */
    public boolean isInFromAlone(Expression generator) {
        String name = generator.prettyName();
        return session.sessionState().catalog().lookupBuiltinOrTempFunction(name).isEmpty()
            && session.sessionState().catalog().lookupBuiltinOrTempTableFunction(name).isDefined();
    }

    /** The generator of LATERAL f(..), in FROM beside the columns. */
    private Expression lateral(String text, List scope) throws Exception {
        final LogicalPlan relation = new LocalRelation(Printer.seq(scope), (Seq) Nil$.MODULE$, false, (Option) None$.MODULE$);
        LogicalPlan parsed = (LogicalPlan) session.sessionState().sqlParser().parsePlan("SELECT * FROM " + MARK + ", " + text);
        LogicalPlan plan = (LogicalPlan) parsed.transformDown(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object p) {
                return p instanceof UnresolvedRelation;
            }

            public Object applyOrElse(Object p, Function1 otherwise) {
                return isDefinedAt(p) ? relation : otherwise.apply(p);
            }
        });
        LogicalPlan resolved = (LogicalPlan) session.sessionState().analyzer().execute(plan);
        session.sessionState().analyzer().checkAnalysis(resolved);
        Expression found = generator(resolved);
        return found == null ? null : (Expression) found.transformUp(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                return e instanceof OuterReference;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                return isDefinedAt(e) ? ((OuterReference) e).e() : otherwise.apply(e);
            }
        });
    }

    private static Expression generator(LogicalPlan plan) {
        if (plan instanceof Generate) {
            return (Expression) ((Generate) plan).generator();
        }
        Expression found = plan instanceof LateralJoin ? generator((LogicalPlan) ((LateralJoin) plan).right().plan()) : null;
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext() && found == null;) {
            found = generator((LogicalPlan) i.next());
        }
        return found;
    }

    private List analysed(int kind, List texts, List originals, List scope) throws Exception {
        if (kind == GENERATOR && ((String) texts.get(0)).startsWith(LATERAL)) {
            return java.util.Collections.singletonList(lateral((String) texts.get(0), scope));
        }
        List outputs = new ArrayList();
        for (int n = 0; n < texts.size(); n++) {
            Expression parsed = session.sessionState().sqlParser().parseExpression((String) texts.get(n));
            outputs.add(kind == GENERATOR
                ? (Object) new MultiAlias(parsed, Printer.seq(generated((Generator) originals.get(n))))
                : alias(parsed, MARK + n));
        }
        LogicalPlan relation = new LocalRelation(Printer.seq(scope), (Seq) Nil$.MODULE$, false, (Option) None$.MODULE$);
        LogicalPlan plan = kind == AGGREGATE
            ? (LogicalPlan) new Aggregate((Seq) Nil$.MODULE$, Printer.seq(outputs), relation, (Option) None$.MODULE$)
            : (LogicalPlan) new Project(Printer.seq(outputs), relation);
        LogicalPlan resolved = (LogicalPlan) session.sessionState().analyzer().execute(plan);
        session.sessionState().analyzer().checkAnalysis(resolved);
        Expression[] found = new Expression[texts.size()];
        collect(resolved, kind, found);
        return java.util.Arrays.asList(found);
    }

    private static void collect(LogicalPlan plan, int kind, Expression[] found) {
        if (kind == GENERATOR && plan instanceof Generate) {
            found[0] = (Expression) ((Generate) plan).generator();
        }
        for (Iterator i = Printer.list(plan.expressions()).iterator(); i.hasNext();) {
            Object e = i.next();
            if (e instanceof Alias && ((Alias) e).name().startsWith(MARK)) {
                int n = Integer.parseInt(((Alias) e).name().substring(MARK.length()));
                if (kind != GENERATOR) {
                    found[n] = ((Alias) e).child();
                }
            }
        }
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            collect((LogicalPlan) i.next(), kind, found);
        }
    }

    private static List generated(Generator generator) {
        List names = new ArrayList();
        for (int n = 0; n < generator.elementSchema().length(); n++) {
            names.add(MARK + n);
        }
        return names;
    }

    private static Alias alias(Expression child, String name) {
        return new Alias(child, name, NamedExpression$.MODULE$.newExprId(), (Seq) Nil$.MODULE$,
            (Option) None$.MODULE$, (Seq) Nil$.MODULE$);
    }

    private static boolean same(Expression a, Expression b) {
        if (!Printer.type(a.dataType()).equals(Printer.type(b.dataType()))) {
            return false;
        }
        return folded(plain(a)).canonicalized().equals(folded(plain(b)).canonicalized());
    }

    private static Expression folded(Expression e) {
        LogicalPlan plan = new Project(Printer.seq(java.util.Collections.singletonList(alias(Bounded.within(e), "x"))), new OneRowRelation());
        LogicalPlan result = (LogicalPlan) ConstantFolding$.MODULE$.apply(plan);
        return (Expression) ((Alias) ((Project) result).projectList().head()).child().transformUp(OF_ANY_NULLS);
    }

    /** Constants of types that may have NULLs in them: whether they have is seen in their values. */
    private static final AbstractPartialFunction OF_ANY_NULLS = new AbstractPartialFunction() {
        public boolean isDefinedAt(Object e) {
            return e instanceof Literal;
        }

        public Object applyOrElse(Object e, Function1 otherwise) {
            return isDefinedAt(e) ? new Literal(((Literal) e).value(), ((Literal) e).dataType().asNullable()) : otherwise.apply(e);
        }
    };

    private static Expression plain(Expression e) {
        if (e instanceof Call) {
            return plain(((Call) e).replacement());
        }
        if (e instanceof RuntimeReplaceable && !(e instanceof AggregateFunction)) {
            return plain(((RuntimeReplaceable) e).replacement());
        }
        if (e instanceof TaggingExpression || e instanceof Bounded) {
            return plain((Expression) e.children().head());
        }
        if (isWriter(e)) {
            return Literal$.MODULE$.apply(writer((scala.Product) ((Literal) e).value()));
        }
        if (e instanceof NamedLambdaVariable) {
            // Whether it may be NULL is told by what it goes over, which is compared itself.
            NamedLambdaVariable v = (NamedLambdaVariable) e;
            return new NamedLambdaVariable(v.name(), v.dataType(), true, v.exprId(), v.value());
        }
        if (e.children().isEmpty()) {
            return e;
        }
        List children = new ArrayList();
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            children.add(plain((Expression) i.next()));
        }
        Expression changed = (Expression) e.withNewChildren(Printer.seq(children));
        if (changed instanceof Invoke && isWriter(((Invoke) e).targetObject())) {
            Invoke call = (Invoke) changed;
            return new Invoke(call.targetObject(), call.functionName(), call.dataType(), call.arguments(), (Seq) Nil$.MODULE$,
                call.propagateNull(), call.returnNullable(), call.isDeterministic());
        }
        if (changed instanceof Cast) {
            Expression child = ((Cast) changed).child();
            if (Printer.type(child.dataType()).equals(Printer.type(changed.dataType()))) {
                return child;
            }
            if (child instanceof ArraysZip && names(changed.dataType(), child.dataType()) != null) {
                return new ArraysZip(child.children(), names(changed.dataType(), child.dataType()));
            }
        }
        return changed;
    }

    /** What writes JSON, CSV or XML: it never asks whether its input may have NULLs, which no text says. */
    private static boolean isWriter(Expression e) {
        Object value = e instanceof Literal ? ((Literal) e).value() : null;
        return value instanceof scala.Product && value.getClass().getSimpleName().startsWith("StructsTo");
    }

    private static String writer(scala.Product evaluator) {
        StringBuilder told = new StringBuilder(evaluator.getClass().getName());
        for (int n = 0; n < evaluator.productArity(); n++) {
            Object part = evaluator.productElement(n);
            told.append(", ").append(part instanceof DataType ? Printer.type((DataType) part) : part);
        }
        return told.toString();
    }

    /** The names of the parts of what is in an array, if they are all that it differs in; else null. */
    private static Seq names(DataType named, DataType other) {
        if (!(named instanceof ArrayType) || !(((ArrayType) named).elementType() instanceof StructType)) {
            return null;
        }
        StructField[] fields = ((StructType) ((ArrayType) named).elementType()).fields();
        StructField[] others = ((StructType) ((ArrayType) other).elementType()).fields();
        List names = new ArrayList();
        for (int n = 0; n < fields.length && fields.length == others.length; n++) {
            if (Printer.type(fields[n].dataType()).equals(Printer.type(others[n].dataType()))) {
                names.add(Literal$.MODULE$.apply(fields[n].name()));
            }
        }
        return names.size() == others.length ? Printer.seq(names) : null;
    }
}
