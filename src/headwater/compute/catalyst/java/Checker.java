package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.analysis.MultiAlias;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.None$;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

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

    private List analysed(int kind, List texts, List originals, List scope) throws Exception {
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
        LogicalPlan plan = new Project(Printer.seq(java.util.Collections.singletonList(alias(e, "x"))), new OneRowRelation());
        LogicalPlan result = (LogicalPlan) ConstantFolding$.MODULE$.apply(plan);
        return ((Alias) ((Project) result).projectList().head()).child();
    }

    private static Expression plain(Expression e) {
        if (e instanceof Call) {
            return plain(((Call) e).replacement());
        }
        if (e instanceof RuntimeReplaceable && !(e instanceof AggregateFunction)) {
            return plain(((RuntimeReplaceable) e).replacement());
        }
        if (e instanceof TaggingExpression) {
            return plain((Expression) e.children().head());
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
