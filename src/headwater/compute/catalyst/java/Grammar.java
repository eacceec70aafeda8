package headwater;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkRuntimeException;

/** What texts denote values: collection/input_grammar.py, handed over as JSON. */
public final class Grammar implements Serializable {
    private static final String BLANKS = " \t\n\r\u000b\f";

    final Map booleans = new HashMap();
    final Map months = new HashMap();
    final Map abbreviations = new HashMap();
    final Set moved = new HashSet();
    final Map refused = new HashMap();
    final Pattern[] moments;
    final int digitsMax;
    final int yearMax;
    private final Map patterns = new HashMap();
    private final Map unsupported = new HashMap();

    public Grammar(String json) throws Exception {
        JsonNode data = new ObjectMapper().readTree(json);
        digitsMax = data.get("digits_max").asInt();
        yearMax = data.get("year_max").asInt();
        for (Iterator i = data.get("booleans").fields(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            booleans.put(each.getKey(), Boolean.valueOf(((JsonNode) each.getValue()).asBoolean()));
        }
        numbers(data.get("months"), months);
        numbers(data.get("abbreviations"), abbreviations);
        moved.addAll(texts(data.get("moved")));
        for (Iterator i = data.get("refused").fields(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            refused.put(each.getKey(), ((JsonNode) each.getValue()).asText());
        }
        for (Iterator i = data.get("patterns").fields(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            patterns.put(each.getKey(), compiled(((JsonNode) each.getValue()).asText()));
        }
        List texts = texts(data.get("moments"));
        moments = new Pattern[texts.size()];
        for (int n = 0; n < moments.length; n++) {
            moments[n] = compiled((String) texts.get(n));
        }
        for (Iterator i = data.get("unsupported").fields(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            List known = new ArrayList();
            for (Iterator j = ((JsonNode) each.getValue()).elements(); j.hasNext();) {
                List pair = texts((JsonNode) j.next());
                known.add(new Object[] {compiled((String) pair.get(0)), pair.get(1)});
            }
            unsupported.put(each.getKey(), known);
        }
    }

    private static List texts(JsonNode from) {
        List found = new ArrayList();
        for (Iterator i = from.elements(); i.hasNext();) {
            found.add(((JsonNode) i.next()).asText());
        }
        return found;
    }

    private static void numbers(JsonNode from, Map into) {
        for (Iterator i = from.fields(); i.hasNext();) {
            Map.Entry each = (Map.Entry) i.next();
            into.put(each.getKey(), Integer.valueOf(((JsonNode) each.getValue()).asInt()));
        }
    }

    private static Pattern compiled(String pattern) {
        return Pattern.compile(pattern, Pattern.CASE_INSENSITIVE | Pattern.DOTALL);
    }

    Matcher matcher(String name, String text) {
        return ((Pattern) patterns.get(name)).matcher(text);
    }

    /** A text without the blanks around it: C's, not Unicode's. */
    String stripped(String text) {
        int start = 0;
        int end = text.length();
        while (start < end && BLANKS.indexOf(text.charAt(start)) >= 0) {
            start++;
        }
        while (end > start && BLANKS.indexOf(text.charAt(end - 1)) >= 0) {
            end--;
        }
        return text.substring(start, end);
    }

    /** An error of a row. */
    static RuntimeException failed(String said) {
        return new SparkRuntimeException("USER_RAISED_EXCEPTION",
            new scala.collection.immutable.Map.Map1("errorMessage", said), null, new QueryContext[0], "");
    }

    /** Fails if PostgreSQL reads a text of this kind and we do not. */
    void refuse(String kind, String text) {
        for (Iterator i = ((List) unsupported.get(kind)).iterator(); i.hasNext();) {
            Object[] known = (Object[]) i.next();
            if (((Pattern) known[0]).matcher(text).matches()) {
                throw failed(known[1] + " is not supported: \"" + text + "\"");
            }
        }
    }

    /** The same of what only a look at the parts of a text has found. */
    RuntimeException refusal(String name, String text) {
        return failed(refused.get(name) + " is not supported: \"" + text + "\"");
    }
}
