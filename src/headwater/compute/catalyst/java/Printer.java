package headwater;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.*;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.AnyValue;
import org.apache.spark.sql.catalyst.expressions.aggregate.First;
import org.apache.spark.sql.catalyst.expressions.aggregate.HyperLogLogPlusPlus;
import org.apache.spark.sql.catalyst.expressions.aggregate.Last;
import org.apache.spark.sql.catalyst.expressions.aggregate.Mode;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.types.*;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Expressions as Spark SQL text over unique names.
 *
 * Catalyst's own text is taken where it can be read back; the cases here are those where it cannot, or
 * where it silently drops a part. Whatever is missed is found by Checker, which reads every text back.
 */
public final class Printer {
    private final Map names = new HashMap();
    private final Map counts = new HashMap();
    private final Map variables = new HashMap();

    /** A name for an attribute: its own, made plain, and a number; the same for the same attribute. */
    public String name(Attribute attribute) {
        return name(attribute.exprId(), attribute.name());
    }

    public String name(ExprId id, String wanted) {
        Object known = names.get(Long.valueOf(id.id()));
        if (known == null) {
            known = fresh(wanted);
            names.put(Long.valueOf(id.id()), known);
        }
        return (String) known;
    }

    public String fresh(String wanted) {
        StringBuilder plain = new StringBuilder();
        String lower = wanted.toLowerCase(java.util.Locale.ROOT);
        for (int n = 0; n < lower.length() && plain.length() < 40; n++) {
            char c = lower.charAt(n);
            plain.append((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9' && plain.length() > 0) || c == '_' ? c : '_');
        }
        String base = plain.toString().replaceAll("_+", "_").replaceAll("^_|_$", "");
        base = base.isEmpty() || !Character.isLetter(base.charAt(0)) ? "c" : base;
        Integer count = (Integer) counts.get(base);
        int next = count == null ? 1 : count.intValue() + 1;
        counts.put(base, Integer.valueOf(next));
        return base + "_" + next;
    }

    public AttributeReference renamed(Attribute a) {
        return new AttributeReference(
            name(a), a.dataType(), a.nullable(), Metadata.empty(), a.exprId(), (Seq) scala.collection.immutable.Nil$.MODULE$);
    }

    public String text(Expression e) {
        return printable(e).sql();
    }

    /** An expression whose sql() is the text wanted. */
    private Expression printable(Expression e) {
        if (e instanceof AttributeReference) {
            return renamed((AttributeReference) e);
        }
        String special = special(e);
        if (special != null) {
            return new PrettyAttribute(special, e.dataType());
        }
        if (e.children().isEmpty()) {
            return e;
        }
        return (Expression) e.withNewChildren(seq(printable(list(e.children()))));
    }

    private List printable(List expressions) {
        List result = new ArrayList();
        for (Iterator i = expressions.iterator(); i.hasNext();) {
            result.add(printable((Expression) i.next()));
        }
        return result;
    }

    private List texts(List expressions) {
        List result = new ArrayList();
        for (Iterator i = expressions.iterator(); i.hasNext();) {
            result.add(text((Expression) i.next()));
        }
        return result;
    }

    /** The text of an expression whose own would be unreadable or would lose a part; null: it is fine. */
    private String special(Expression e) {
        if (e instanceof Call) {
            return call((Call) e);
        }
        if (e instanceof Literal && ((Literal) e).value() == null && type(e.dataType()).indexOf('<') >= 0) {
            // Its own text is NULL, of no type.
            return "CAST(NULL AS " + e.dataType().sql() + ")";
        }
        if (e instanceof Literal && (e.sql().contains("ARRAY()") || e.sql().contains("MAP()"))) {
            // Of what there is none, its own text does not say.
            return "CAST(" + e.sql() + " AS " + e.dataType().sql() + ")";
        }
        if (e instanceof ExtractANSIIntervalDays) {
            return "extract(DAY FROM " + text(((ExtractANSIIntervalDays) e).child()) + ")";
        }
        if (e instanceof LambdaFunction) {
            return lambda((LambdaFunction) e);
        }
        if (e instanceof NamedLambdaVariable) {
            return variable((NamedLambdaVariable) e);
        }
        if (e instanceof JsonToStructs) {
            JsonToStructs json = (JsonToStructs) e;
            return "from_json(" + text(json.child()) + ", " + quoted(json.schema().sql()) + options(json.options()) + ")";
        }
        if (e instanceof CsvToStructs) {
            CsvToStructs csv = (CsvToStructs) e;
            return "from_csv(" + text(csv.child()) + ", " + quoted(csv.schema().sql()) + options(csv.options()) + ")";
        }
        if (e instanceof StructsToJson) {
            StructsToJson json = (StructsToJson) e;
            return "to_json(" + text(json.child()) + options(json.options()) + ")";
        }
        if (e instanceof StructsToCsv) {
            StructsToCsv csv = (StructsToCsv) e;
            return "to_csv(" + text(csv.child()) + options(csv.options()) + ")";
        }
        if (e instanceof XmlToStructs) {
            XmlToStructs xml = (XmlToStructs) e;
            return "from_xml(" + text(xml.child()) + ", " + quoted(xml.schema().sql()) + options(xml.options()) + ")";
        }
        if (e instanceof StructsToXml) {
            StructsToXml xml = (StructsToXml) e;
            return "to_xml(" + text(xml.child()) + options(xml.options()) + ")";
        }
        if (e instanceof Cast && isWritten((Cast) e)) {
            String word = ((Cast) e).evalMode().equals(EvalMode$.MODULE$.TRY()) ? "TRY_CAST(" : "CAST(";
            return word + text(((Cast) e).child()) + " AS " + e.dataType().sql() + ")";
        }
        if (e instanceof ShiftRight || e instanceof ShiftRightUnsigned) {
            // After the word array, Spark reads >> as the end of two types.
            return (e instanceof ShiftRight ? "shiftright(" : "shiftrightunsigned(")
                + String.join(", ", texts(list(e.children()))) + ")";
        }
        if (e instanceof TryEval && ("try_" + ((TryEval) e).child().prettyName()).equals(e.prettyName())) {
            // Its own text is try_f(f(x)).
            Expression tried = ((TryEval) e).child();
            List parts = tried instanceof Call ? ((Call) tried).parameters() : list(tried.children());
            return e.prettyName() + "(" + String.join(", ", texts(parts)) + ")";
        }
        if (e instanceof Collate) {
            return "(" + text(((Collate) e).child()) + " COLLATE " + ((Collate) e).collation().sql() + ")";
        }
        if (e instanceof ArraysZip && isNamed((ArraysZip) e)) {
            // Its fields have the names of the columns, which are others here. Checker knows this form.
            return "CAST(arrays_zip(" + String.join(", ", texts(list(e.children()))) + ") AS " + e.dataType().sql() + ")";
        }
        if (e instanceof VariantGet) {
            VariantGet get = (VariantGet) e;
            return (get.failOnError() ? "variant_get(" : "try_variant_get(") + text(get.child()) + ", "
                + text(get.path()) + ", " + quoted(get.targetType().sql()) + ")";
        }
        if (e instanceof AggregateExpression) {
            return aggregate((AggregateExpression) e);
        }
        if (e instanceof CreateNamedStruct) {
            // Its own text may be struct(a, b), which takes the names of its fields from the columns.
            return "named_struct(" + String.join(", ", texts(list(e.children()))) + ")";
        }
        if (e instanceof Like) {
            return like(text(((Like) e).left()), "LIKE", text(((Like) e).right()), ((Like) e).escapeChar());
        }
        if (e instanceof ILike) {
            return like(text(((ILike) e).left()), "ILIKE", text(((ILike) e).right()), ((ILike) e).escapeChar());
        }
        if (e.children().size() == 1 && "to_varchar".equals(e.prettyName())) {
            // Of a binary: base64() or hex() under a name that takes a format, too.
            return e.getClass().getSimpleName().toLowerCase(java.util.Locale.ROOT) + "("
                + text((Expression) e.children().head()) + ")";
        }
        if (e instanceof LikeAll || e instanceof NotLikeAll || e instanceof LikeAny || e instanceof NotLikeAny) {
            return like((MultiLikeBase) e);
        }
        if (e instanceof PythonUDF) {
            // Its own text has the children as they are shown, not as they are written.
            return ((PythonUDF) e).name() + "(" + String.join(", ", texts(list(e.children()))) + ")";
        }
        if (e instanceof NamedArgumentExpression) {
            NamedArgumentExpression argument = (NamedArgumentExpression) e;
            return "`" + argument.key().replace("`", "``") + "` => " + text(argument.value());
        }
        if (e instanceof TaggingExpression) {
            return text((Expression) e.children().head());
        }
        return null;
    }

    private static boolean isNamed(ArraysZip zip) {
        List names = list(zip.names());
        for (int n = 0; n < names.size(); n++) {
            boolean numbered = String.valueOf(n).equals(String.valueOf(((Expression) names.get(n)).eval(null)));
            if (!numbered || zip.children().apply(n) instanceof NamedExpression) {
                return true;
            }
        }
        return false;
    }

    /** A cast that the query has, to what has parts: its own text leaves it out, as Spark's own come back by themselves. */
    private static boolean isWritten(Cast cast) {
        return type(cast.dataType()).indexOf('<') >= 0 && cast.getTagValue(Cast$.MODULE$.USER_SPECIFIED_CAST()).isDefined();
    }

    /** First, last and any_value drop their IGNORE NULLS, approx_count_distinct its precision; mode turns its order round. */
    private String aggregate(AggregateExpression e) {
        AggregateFunction function = e.aggregateFunction();
        String argument = function.children().isEmpty() ? "" : text((Expression) function.children().head());
        String once = e.isDistinct() ? "DISTINCT " : "";
        String call = null;
        if ((function instanceof First && ((First) function).ignoreNulls())
                || (function instanceof Last && ((Last) function).ignoreNulls())
                || (function instanceof AnyValue && ((AnyValue) function).ignoreNulls())) {
            call = function.prettyName() + "(" + once + argument + ", true)";
        } else if (function instanceof HyperLogLogPlusPlus) {
            call = function.prettyName() + "(" + once + argument + ", " + ((HyperLogLogPlusPlus) function).relativeSD() + "D)";
        } else if (function instanceof Mode && ((Mode) function).reverseOpt().isDefined()) {
            call = Boolean.TRUE.equals(((Mode) function).reverseOpt().get())
                ? "mode(" + once + argument + ", true)" : "mode() WITHIN GROUP (ORDER BY " + once + argument + " DESC)";
        }
        if (call == null) {
            return null;
        }
        return call + (e.filter().isDefined() ? " FILTER (WHERE " + text((Expression) e.filter().get()) + ")" : "");
    }

    private String call(Call e) {
        List parts = texts(e.parameters());
        if (e.template() instanceof Extract) {
            return "date_part(" + parts.get(0) + ", " + parts.get(1) + ")";
        }
        if (e.template() instanceof TryMakeTimestamp) {
            // Its own parameters lack the time zone.
            return e.prettyName() + "(" + String.join(", ", texts(list(e.replacement().children()))) + ")";
        }
        return ((InheritAnalysisRules) e.template()).makeSQLString(seq(parts));
    }

    /** In parentheses: before IS NULL, say, its own text cannot be read. */
    private static String like(String value, String word, String pattern, char escape) {
        return "(" + value + " " + word + " " + pattern
            + (escape == '\\' ? "" : " ESCAPE " + quoted(String.valueOf(escape))) + ")";
    }

    private String lambda(LambdaFunction e) {
        List arguments = texts(list(e.arguments()));
        String body = text(e.function());
        if (arguments.size() == 1) {
            return arguments.get(0) + " -> " + body;
        }
        return "(" + String.join(", ", arguments) + ") -> " + body;
    }

    private String variable(NamedLambdaVariable e) {
        Long id = Long.valueOf(e.exprId().id());
        Object known = variables.get(id);
        if (known == null) {
            known = "v" + (variables.size() + 1);
            variables.put(id, known);
        }
        return (String) known;
    }

    private String like(MultiLikeBase e) {
        boolean all = e instanceof LikeAll || e instanceof NotLikeAll;
        boolean not = e instanceof NotLikeAll || e instanceof NotLikeAny;
        List patterns = new ArrayList();
        for (Iterator i = list(e.patterns()).iterator(); i.hasNext();) {
            patterns.add(Literal$.MODULE$.create(i.next(), DataTypes.StringType).sql());
        }
        return "(" + text((Expression) list(((Expression) e).children()).get(0)) + (not ? " NOT LIKE " : " LIKE ")
            + (all ? "ALL (" : "ANY (") + String.join(", ", patterns) + "))";
    }

    private static String options(scala.collection.immutable.Map options) {
        Map sorted = new java.util.TreeMap(CollectionConverters.asJava(options));
        if (sorted.isEmpty()) {
            return "";
        }
        List parts = new ArrayList();
        for (Iterator i = sorted.entrySet().iterator(); i.hasNext();) {
            Map.Entry entry = (Map.Entry) i.next();
            parts.add(quoted((String) entry.getKey()) + ", " + quoted((String) entry.getValue()));
        }
        return ", map(" + String.join(", ", parts) + ")";
    }

    private static String quoted(String text) {
        return Literal$.MODULE$.apply(text).sql();
    }

    /** A type as Spark's DDL and collection/types.py read it. */
    public static String type(DataType type) {
        if (type instanceof ArrayType) {
            return "array<" + type(((ArrayType) type).elementType()) + ">";
        }
        if (type instanceof MapType) {
            return "map<" + type(((MapType) type).keyType()) + "," + type(((MapType) type).valueType()) + ">";
        }
        if (type instanceof StructType) {
            StructField[] fields = ((StructType) type).fields();
            List parts = new ArrayList();
            for (int n = 0; n < fields.length; n++) {
                String name = fields[n].name();
                boolean plain = name.matches("[A-Za-z_][A-Za-z0-9_]*");
                parts.add((plain ? name : "`" + name.replace("`", "``") + "`") + ":" + type(fields[n].dataType()));
            }
            return "struct<" + String.join(",", parts) + ">";
        }
        return type.catalogString();
    }

    public static List list(scala.collection.Seq items) {
        return CollectionConverters.asJava(items);
    }

    public static Seq seq(List items) {
        return CollectionConverters.asScala(items).toSeq();
    }
}
