package headwater;

import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.TimestampNTZType$;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A text as a value of a type, as PostgreSQL's input functions read it.
 *
 * Which texts there are is data (collection/input_grammar.py); what they mean, adapter/sql/text.py says in
 * Python, with the same errors in the same words. Dates and times are read by Moments.
 */
public final class Reader implements Serializable, java.util.function.Function {
    private static final Pattern NUMERIC = Pattern.compile("numeric\\((\\d+),(\\d+)\\)");
    private static final String HEX = "0123456789abcdefABCDEF";
    /** As NUMERIC_BARE in collection/types.py. */
    private static final int BARE_PRECISION = 38;
    private static final int BARE_SCALE = 9;
    private static final Pattern NOT_ZERO = Pattern.compile("[^eE]*[1-9].*");

    private final String type;
    private final Grammar grammar;
    private final int precision;
    private final int scale;

    public Reader(String type, Grammar grammar) {
        this.type = type;
        this.grammar = grammar;
        Matcher numeric = NUMERIC.matcher(type);
        boolean sized = numeric.matches();
        this.precision = sized ? Integer.parseInt(numeric.group(1)) : 0;
        this.scale = sized ? Integer.parseInt(numeric.group(2)) : 0;
        if (dataType() == null) {
            throw new IllegalArgumentException("no text is read as " + type);
        }
    }

    public String type() {
        return type;
    }

    /** Null if there is no such type. */
    public DataType dataType() {
        if (precision > 0) {
            return new DecimalType(precision, scale);
        }
        switch (type) {
            case "boolean": return DataTypes.BooleanType;
            case "smallint": return DataTypes.ShortType;
            case "integer": return DataTypes.IntegerType;
            case "bigint": return DataTypes.LongType;
            case "real": return DataTypes.FloatType;
            case "double precision": return DataTypes.DoubleType;
            case "date": return DataTypes.DateType;
            case "timestamp": return TimestampNTZType$.MODULE$;
            case "timestamp with time zone": return DataTypes.TimestampType;
            case "uuid": return DataTypes.StringType;
            case "bytea": return DataTypes.BinaryType;
            default: return null;
        }
    }

    public Object apply(Object text) {
        return text == null ? null : read(text.toString());
    }

    private Object read(String text) {
        if (precision > 0) {
            return numeric(text);
        }
        switch (type) {
            case "boolean": return bool(text);
            case "smallint": return Short.valueOf((short) integer(text, 16));
            case "integer": return Integer.valueOf((int) integer(text, 32));
            case "bigint": return Long.valueOf(integer(text, 64));
            case "real": return real(text);
            case "double precision": return number(text);
            case "uuid": return uuid(text);
            case "bytea": return bytea(text);
            default: return new Moments(type, grammar, text).read();
        }
    }

    private RuntimeException invalid(String text) {
        return Grammar.failed("invalid input syntax for type " + (precision > 0 ? "numeric" : type) + ": \"" + text + "\"");
    }

    private RuntimeException outOfRange(String text) {
        return Grammar.failed("value \"" + text + "\" is out of range for type " + (precision > 0 ? "numeric" : type));
    }

    private Object bool(String text) {
        Boolean value = (Boolean) grammar.booleans.get(grammar.stripped(text).toLowerCase(Locale.ROOT));
        if (value == null) {
            throw invalid(text);
        }
        return value;
    }

    /** The integer that a text is in another base than ten, if it is in one. */
    private static BigInteger whole(Matcher found) {
        String[] bases = {"hex", "octal", "binary"};
        int[] sizes = {16, 8, 2};
        for (int n = 0; n < bases.length; n++) {
            if (found.group(bases[n]) != null) {
                return new BigInteger(found.group(bases[n]).replace("_", ""), sizes[n]);
            }
        }
        return null;
    }

    private long integer(String text, int bits) {
        Matcher found = grammar.matcher("integer", text);
        if (!found.matches()) {
            throw invalid(text);
        }
        if (text.length() > grammar.digitsMax) {
            throw outOfRange(text);
        }
        BigInteger value = whole(found);
        value = value == null ? new BigInteger(found.group("digits").replace("_", "")) : value;
        value = found.group("sign").equals("-") ? value.negate() : value;
        if (value.bitLength() >= bits) {
            throw outOfRange(text);
        }
        return value.longValue();
    }

    private Object numeric(String text) {
        Matcher found = grammar.matcher("numeric", text);
        if (!found.matches()) {
            grammar.refuse("numeric", text);
            throw invalid(text);
        }
        if (text.length() > grammar.digitsMax) {
            throw outOfRange(text);
        }
        BigInteger whole = whole(found);
        BigDecimal value;
        try {
            value = whole == null ? new BigDecimal(found.group("digits").replace("_", "")) : new BigDecimal(whole);
        } catch (NumberFormatException e) {
            throw outOfRange(text);
        }
        // One that is longer than any is not written out to be rounded.
        if (value.signum() != 0 && (long) value.precision() - value.scale() > precision) {
            throw overflow(text);
        }
        if (isBare() && value.signum() != 0) {
            requireBare(text, value);
        }
        if (value.signum() == 0 || (long) value.scale() - value.precision() > scale + 1L) {
            value = BigDecimal.ZERO;
        }
        value = value.setScale(scale, RoundingMode.HALF_UP);
        if (value.precision() > precision && value.signum() != 0) {
            throw overflow(text);
        }
        return Decimal.apply(found.group("sign").equals("-") ? value.negate() : value, precision, scale);
    }

    /** PostgreSQL's numeric of no precision has room for it, ours has not. */
    private RuntimeException overflow(String text) {
        return isBare() ? outOfRange(text) : Grammar.failed("numeric field overflow");
    }

    private boolean isBare() {
        return precision == BARE_PRECISION && scale == BARE_SCALE;
    }

    /** What a numeric of no precision would have to round: PostgreSQL does not. */
    private static void requireBare(String text, BigDecimal value) {
        long digits = (long) value.stripTrailingZeros().scale();
        if (digits > BARE_SCALE) {
            throw Grammar.failed("value " + text + " does not fit into numeric: it has " + digits
                + " digits after the point, of which " + BARE_SCALE + " are kept; cast it to numeric(p,s)");
        }
    }

    private Matcher floating(String text) {
        Matcher found = grammar.matcher("float", text);
        if (!found.matches()) {
            grammar.refuse("float", text);
            throw invalid(text);
        }
        return found;
    }

    private static double special(Matcher found) {
        return found.group("nan") != null ? Double.NaN : found.group("sign").equals("-") ? Double.NEGATIVE_INFINITY
            : Double.POSITIVE_INFINITY;
    }

    private Object number(String text) {
        Matcher found = floating(text);
        String digits = found.group("digits");
        if (digits == null) {
            return Double.valueOf(special(found));
        }
        double value = Double.parseDouble(digits);
        if (Double.isInfinite(value) || (value == 0 && NOT_ZERO.matcher(digits).matches())) {
            throw Grammar.failed("\"" + text + "\" is out of range for type " + type);
        }
        return Double.valueOf(found.group("sign").equals("-") ? -value : value);
    }

    private Object real(String text) {
        Matcher found = floating(text);
        String digits = found.group("digits");
        if (digits == null) {
            return Float.valueOf((float) special(found));
        }
        float value = Float.parseFloat(digits);
        if (Float.isInfinite(value) || (value == 0 && NOT_ZERO.matcher(digits).matches())) {
            throw Grammar.failed("\"" + text + "\" is out of range for type " + type);
        }
        return Float.valueOf(found.group("sign").equals("-") ? -value : value);
    }

    private Object uuid(String text) {
        Matcher found = grammar.matcher("uuid", text);
        if (!found.matches() || found.group("open").isEmpty() != found.group("close").isEmpty()) {
            throw invalid(text);
        }
        String digits = found.group("digits").replace("-", "").toLowerCase(Locale.ROOT);
        return UTF8String.fromString(digits.substring(0, 8) + "-" + digits.substring(8, 12) + "-" + digits.substring(12, 16)
            + "-" + digits.substring(16, 20) + "-" + digits.substring(20));
    }

    private Object bytea(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        if (text.startsWith("\\x")) {
            Matcher found = grammar.matcher("hex", text);
            found.matches();
            String rest = found.group("rest");
            if (!rest.isEmpty()) {
                boolean first = HEX.indexOf(rest.charAt(0)) < 0;
                throw Grammar.failed(!first && rest.length() == 1 ? "invalid hexadecimal data: odd number of digits"
                    : "invalid hexadecimal digit: \"" + new String(Character.toChars(rest.codePointAt(first ? 0 : 1))) + "\"");
            }
            String digits = found.group("digits").replaceAll("\\s", "");
            for (int n = 0; n < digits.length(); n += 2) {
                bytes.write(Integer.parseInt(digits.substring(n, n + 2), 16));
            }
            return bytes.toByteArray();
        }
        if (!grammar.matcher("escaped", text).matches()) {
            throw Grammar.failed("invalid input syntax for type bytea");
        }
        byte[] written = text.getBytes(StandardCharsets.UTF_8);
        for (int n = 0; n < written.length; n++) {
            if (written[n] != '\\') {
                bytes.write(written[n]);
            } else if (written[n + 1] == '\\') {
                bytes.write(written[++n]);
            } else {
                bytes.write(Integer.parseInt(new String(written, n + 1, 3, StandardCharsets.US_ASCII), 8));
                n += 3;
            }
        }
        return bytes.toByteArray();
    }
}
