package headwater;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.types.*;
import scala.None$;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Expressions made fit to be printed, or refused: no subquery, nothing volatile, no collated key.
 *
 * A subquery that is left is uncorrelated; it becomes a column of its id, and the operator lists it.
 */
public final class Prepared {
    private static final Set VOLATILE = new HashSet(Arrays.asList(new String[] {
        "CurrentTimestamp", "Now", "CurrentDate", "CurrentTime", "LocalTimestamp", "CurrentBatchTimestamp",
        "CurrentTimestampNanos", "LocalTimestampNanos", "CurrentTimestampPrecision", "UTCTimestamp"}));
    private static final Set SURROUNDINGS = new HashSet(Arrays.asList(new String[] {
        "CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentPath", "SparkVersion", "InputFileName",
        "InputFileBlockStart", "InputFileBlockLength"}));

    /** Places among the children of AesEncrypt. */
    private static final int MODE = 2;
    private static final int IV = 4;

    private final Map subqueries;
    private final UserFunctions functions;

    /** Both are filled: ids to subqueries, and the user's functions. */
    public Prepared(Map subqueries, UserFunctions functions) {
        this.subqueries = subqueries;
        this.functions = functions;
    }

    public Expression of(Expression e) {
        if (!(e instanceof PlanExpression) && e.resolved()) {
            requireBinary(e.dataType(), e);
        }
        return part(e);
    }

    /** What stands inside of an expression may have a collation, which decides for that row alone. */
    private Expression part(Expression e) {
        require(e);
        if (e instanceof PlanExpression) {
            return subquery((PlanExpression) e);
        }
        if (e instanceof PreciseTimestampConversion) {
            return micros((PreciseTimestampConversion) e);
        }
        if (e instanceof AtLeastNNonNulls) {
            return notNull((AtLeastNNonNulls) e);
        }
        if (e instanceof PythonUDF) {
            return functions.called((PythonUDF) e, all(Printer.list(e.children())));
        }
        if (e instanceof Alias) {
            // A name inside of an expression, where a rule has put a whole output.
            return part(((Alias) e).child());
        }
        if (e.foldable() && !e.references().isEmpty()) {
            // A constant although it mentions columns, which an aggregate has no longer: typeof().
            return Literal$.MODULE$.create(e.eval(null), e.dataType());
        }
        if (e.children().isEmpty()) {
            return e;
        }
        List children = new ArrayList();
        boolean changed = false;
        for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
            Expression child = (Expression) i.next();
            Expression prepared = part(child);
            changed = changed || prepared != child;
            children.add(prepared);
        }
        if (e instanceof Cast && ((Expression) children.get(0)).dataType().equals(e.dataType())) {
            return (Expression) children.get(0);
        }
        if (e instanceof AesEncrypt && !((AesEncrypt) e).iv().foldable()) {
            children.set(IV, given((Expression) children.get(IV), (Expression) children.get(MODE)));
            changed = true;
        }
        return changed ? (Expression) e.withNewChildren(Printer.seq(children)) : e;
    }

    /** An iv that fails where it is empty: Spark would make one up, another each time. */
    private static Expression given(Expression iv, Expression mode) {
        Expression text = Literal$.MODULE$.apply("aes_encrypt() of an empty iv is not deterministic; give it an iv");
        Expression message = new CreateMap(Printer.seq(Arrays.asList(new Object[] {
            Literal$.MODULE$.apply("errorMessage"), text})), false);
        Expression raised = new RaiseError(Literal$.MODULE$.apply("USER_RAISED_EXCEPTION"), message, DataTypes.NullType);
        Expression none = new EqualTo(new OctetLength(iv), Literal$.MODULE$.apply(Integer.valueOf(0)));
        Expression other = new Not(new EqualTo(new Upper(mode), Literal$.MODULE$.apply("ECB")));
        Expression nothing = new Cast(raised, iv.dataType(), (Option) None$.MODULE$, EvalMode$.MODULE$.ANSI());
        return new If(new And(none, other), nothing, iv);
    }

    private List all(List expressions) {
        List result = new ArrayList();
        for (Iterator i = expressions.iterator(); i.hasNext();) {
            result.add(part((Expression) i.next()));
        }
        return result;
    }

    /** Whether an expression is the current time in one of its forms. */
    public static boolean isVolatile(Expression e) {
        return VOLATILE.contains(kind(e));
    }

    private static String kind(Expression e) {
        return e.getClass().getSimpleName().replace("$", "");
    }

    /** Refuses what is not a function of the row; says nothing of what stands inside. */
    public static void require(Expression e) {
        if (isVolatile(e)) {
            throw new Refusal(e.prettyName() + "()", "its value changes although no row changes",
                "compare it with a timestamp in WHERE: ts > now() - INTERVAL '1' HOUR", e.origin());
        }
        if (SURROUNDINGS.contains(kind(e))) {
            throw new Refusal(e.prettyName() + "()", "its value depends on who asks, or where", "", e.origin());
        }
        if (e instanceof OuterReference) {
            throw new Refusal(((OuterReference) e).name(), "a subquery of this form cannot be made a join",
                "write it as a join", e.origin());
        }
        if (e instanceof UserDefinedExpression) {
            UserFunctions.require(e);
        }
        // Not deterministic(): that of a parent is false because of a child, and the child is to be named.
        if (e instanceof Nondeterministic || (!e.deterministic() && e.children().forall(new scala.runtime.AbstractFunction1() {
                public Object apply(Object child) {
                    return Boolean.valueOf(((Expression) child).deterministic());
                }
            }))) {
            String name = e instanceof UserDefinedExpression ? ((UserDefinedExpression) e).name() : e.prettyName();
            throw new Refusal(name + "()", "it is not deterministic",
                "write its value into a column of the data instead", e.origin());
        }
        if (e instanceof AesEncrypt && !isRepeated((AesEncrypt) e)) {
            throw new Refusal(e.prettyName() + "()", "it is not deterministic: it begins with random bytes",
                "give it the mode 'ECB', or an iv", e.origin());
        }
        if (e instanceof AggregateFunction || e instanceof WindowSpecDefinition) {
            // Rows are compared by what these are given.
            for (Iterator i = Printer.list(e.children()).iterator(); i.hasNext();) {
                Expression given = (Expression) i.next();
                if (given.resolved() && !(given instanceof WindowFrame)) {
                    requireBinary(given.dataType(), given);
                }
            }
        }
    }

    /** Whether it gives the same each time: without an iv, or with an empty one, Spark makes one up. */
    private static boolean isRepeated(AesEncrypt e) {
        if (e.mode().foldable() && "ECB".equalsIgnoreCase(String.valueOf(e.mode().eval(null)))) {
            return true;
        }
        if (!e.iv().foldable()) {
            // Whether it is empty is looked at row by row.
            return true;
        }
        Object iv = e.iv().eval(null);
        return iv == null || (iv instanceof byte[] ? ((byte[]) iv).length : String.valueOf(iv).length()) > 0;
    }

    public static void requireBinary(DataType type, Expression e) {
        if (type instanceof StringType && !((StringType) type).isUTF8BinaryCollation()) {
            throw new Refusal(e.prettyName(), "it has the collation " + ((StringType) type).collationName(),
                "use UTF8_BINARY", e.origin());
        }
        if (type instanceof ArrayType) {
            requireBinary(((ArrayType) type).elementType(), e);
        } else if (type instanceof MapType) {
            requireBinary(((MapType) type).keyType(), e);
            requireBinary(((MapType) type).valueType(), e);
        } else if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            for (int n = 0; n < fields.length; n++) {
                requireBinary(fields[n].dataType(), e);
            }
        }
    }

    private Expression subquery(PlanExpression e) {
        boolean scalar = e instanceof ScalarSubquery;
        if (!scalar && !(e instanceof Exists)) {
            throw new Refusal(e.prettyName(), "a subquery of this form is not supported here", "write it as a join", e.origin());
        }
        if (((SubqueryExpression) e).isCorrelated()) {
            throw new Refusal("a correlated subquery", "it cannot be made a join where it stands",
                "write it as a join", e.origin());
        }
        AttributeReference column = new AttributeReference(scalar ? "subquery" : "exists", e.dataType(), scalar,
            Metadata.empty(), e.exprId(), (Seq) Nil$.MODULE$);
        subqueries.put(e, column);
        return column;
    }

    /** Spark's own conversion is internal; these two are its public equals, and the session is in UTC. */
    private Expression micros(PreciseTimestampConversion e) {
        Expression child = part(e.child());
        if (e.toType() instanceof LongType) {
            return new UnixMicros(e.fromType() instanceof TimestampNTZType ? cast(child, DataTypes.TimestampType) : child);
        }
        Expression timestamp = new MicrosToTimestamp(child);
        return e.toType() instanceof TimestampNTZType ? cast(timestamp, DataTypes.TimestampNTZType) : timestamp;
    }

    /** Of DataFrame.na.drop: it has no text. All of them, or any of them; a NaN counts as NULL. */
    private Expression notNull(AtLeastNNonNulls e) {
        List children = Printer.list(e.children());
        if (e.n() != 1 && e.n() != children.size()) {
            throw new Refusal("na.drop(thresh=" + e.n() + ")", "it has no text", "count the columns yourself", e.origin());
        }
        Expression result = null;
        for (Iterator i = children.iterator(); i.hasNext();) {
            Expression child = part((Expression) i.next());
            boolean floating = child.dataType() instanceof DoubleType || child.dataType() instanceof FloatType;
            Expression present = new IsNotNull(child);
            Expression one = floating ? new And(present, new Not(new IsNaN(child))) : present;
            result = result == null ? one : e.n() == 1 ? new Or(result, one) : new And(result, one);
        }
        return result;
    }

    private static Expression cast(Expression child, DataType type) {
        return new Cast(child, type, Option.apply("UTC"), EvalMode$.MODULE$.ANSI());
    }
}
