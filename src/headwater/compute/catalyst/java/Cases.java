package headwater;

import com.ibm.icu.lang.UCharacter;
import com.ibm.icu.util.VersionInfo;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Texts in upper or lower case, code point by code point: each becomes one code point, whatever stands around it.
 *
 * So PostgreSQL's C.UTF-8 has it, of the Unicode that it knows. Spark's own are Unicode's in full.
 */
final class Cases {
    private static final VersionInfo UNICODE = VersionInfo.getInstance(16);

    private Cases() {
    }

    static UTF8String of(UTF8String text, boolean upper) {
        if (text.isFullAscii()) {
            return upper ? text.toUpperCaseAscii() : text.toLowerCaseAscii();
        }
        String given = text.toString();
        StringBuilder made = new StringBuilder(given.length());
        int next = 0;
        while (next < given.length()) {
            int point = given.codePointAt(next);
            made.appendCodePoint(of(point, upper));
            next += Character.charCount(point);
        }
        return UTF8String.fromString(made.toString());
    }

    private static int of(int point, boolean upper) {
        int made = upper ? UCharacter.toUpperCase(point) : UCharacter.toLowerCase(point);
        return made != point && isKnown(point) && isKnown(made) ? made : point;
    }

    /** A later Unicode also gives new cases to old letters. */
    private static boolean isKnown(int point) {
        return UCharacter.getAge(point).compareTo(UNICODE) <= 0;
    }
}
