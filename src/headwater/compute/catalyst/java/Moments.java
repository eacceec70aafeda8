package headwater;

import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.zone.ZoneOffsetTransition;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;

/** The date, timestamp or instant that a text says; step by step as adapter/sql/moments.py. */
final class Moments {
    private static final int HOURS_MAX = 15;
    private static final int DAYS_MAX = 366;
    private static final long DAY_MICROS = 86400000000L;
    private static final Map ZONES = zones();

    private final String type;
    private final Grammar grammar;
    private final String text;
    private Matcher parts;

    Moments(String type, Grammar grammar, String text) {
        this.type = type;
        this.grammar = grammar;
        this.text = text;
    }

    private static Map zones() {
        Map found = new HashMap();
        for (Iterator i = ZoneId.getAvailableZoneIds().iterator(); i.hasNext();) {
            String name = (String) i.next();
            // Of Java alone.
            if (!name.startsWith("SystemV/")) {
                found.put(name.toLowerCase(Locale.ROOT), name);
            }
        }
        return found;
    }

    /** Days for a date, else microseconds; from 1970. */
    Object read() {
        if (grammar.matcher("epoch", text).matches()) {
            return type.equals("date") ? (Object) Integer.valueOf(0) : Long.valueOf(0);
        }
        for (int n = 0; n < grammar.moments.length; n++) {
            parts = grammar.moments[n].matcher(text);
            if (parts.matches()) {
                return value();
            }
        }
        throw invalid();
    }

    private RuntimeException invalid() {
        grammar.refuse("moment", text);
        return Grammar.failed("invalid input syntax for type " + type + ": \"" + text + "\"");
    }

    private RuntimeException outOfRange() {
        return Grammar.failed("date/time field value out of range: \"" + text + "\"");
    }

    /** A part of the text, or null: also where its pattern has none of that name. */
    private String part(String name) {
        try {
            return parts.group(name);
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    private int number(String name, int otherwise) {
        String written = part(name);
        return written == null || written.isEmpty() ? otherwise : Integer.parseInt(written);
    }

    private Object value() {
        if ("bc".equalsIgnoreCase(part("era"))) {
            throw grammar.refusal("bc", text);
        }
        long passed = passed();
        ZoneId zone = zone();
        LocalDate day = day();
        if (type.equals("date")) {
            return Integer.valueOf((int) day.toEpochDay());
        }
        long wall = day.toEpochDay() * DAY_MICROS + passed;
        long found = zone == null || type.equals("timestamp") ? wall : instant(wall, zone);
        LocalDate shown = LocalDate.ofEpochDay(Math.floorDiv(type.equals("timestamp") ? wall : found, DAY_MICROS));
        if (LocalDate.ofEpochDay(Math.floorDiv(wall, DAY_MICROS)).getYear() > grammar.yearMax
                || shown.getYear() > grammar.yearMax || shown.getYear() < 1) {
            throw outOfRange();
        }
        return Long.valueOf(found);
    }

    private LocalDate day() {
        String written = part("year");
        int year = Integer.parseInt(written);
        if (written.length() < 3) {
            year += year < 70 ? 2000 : 1900;
        }
        if (year > grammar.yearMax) {
            throw grammar.refusal("year", text);
        }
        String name = part("name");
        int dayOfYear = number("yearday", 1);
        if (dayOfYear == 0 || dayOfYear > DAYS_MAX) {
            throw invalid();
        }
        int month = name == null ? number("month", 1)
            : ((Integer) grammar.months.get(name.toLowerCase(Locale.ROOT))).intValue();
        if (year == 0) {
            throw outOfRange();
        }
        LocalDate found;
        try {
            found = LocalDate.of(year, month, number("day", 1)).plusDays(dayOfYear - 1);
        } catch (DateTimeException e) {
            throw outOfRange();
        }
        if (found.getYear() > grammar.yearMax) {
            throw outOfRange();
        }
        return found;
    }

    /** Microseconds of the day. */
    private long passed() {
        String clock = part("clock");
        int hour = clock == null ? number("hour", 0) : Integer.parseInt(clock.substring(0, 2));
        int minute = clock == null ? number("minute", 0) : Integer.parseInt(clock.substring(2, 4));
        int second = clock == null ? number("second", 0) : clock.length() > 4 ? Integer.parseInt(clock.substring(4)) : 0;
        String fraction = part("fraction");
        fraction = fraction == null || fraction.isEmpty() ? part("part") : fraction;
        long micros = fraction == null || fraction.isEmpty() ? 0
            : (long) Math.rint(Double.parseDouble("0." + fraction) * 1000000);
        String half = part("half");
        if (half != null) {
            if (hour > 12) {
                throw outOfRange();
            }
            hour = hour % 12 + (half.equalsIgnoreCase("pm") ? 12 : 0);
        }
        if (hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute > 0 || second > 0 || micros > 0))) {
            throw outOfRange();
        }
        return ((hour * 60L + minute) * 60 + second) * 1000000 + micros;
    }

    private ZoneId zone() {
        if (part("shift") != null) {
            return shift();
        }
        String name = part("zone");
        if (name == null) {
            return null;
        }
        String lower = name.toLowerCase(Locale.ROOT);
        Integer known = (Integer) grammar.abbreviations.get(lower);
        if (known != null) {
            return ZoneOffset.ofTotalSeconds(known.intValue());
        }
        if (grammar.moved.contains(lower)) {
            throw grammar.refusal("moved", text);
        }
        if (ZONES.containsKey(lower)) {
            return ZoneId.of((String) ZONES.get(lower));
        }
        if (grammar.matcher("posix", name).matches()) {
            throw grammar.refusal("posix", text);
        }
        if (lower.matches("[a-z]+")) {
            throw invalid();
        }
        throw Grammar.failed("time zone \"" + lower + "\" not recognized");
    }

    private ZoneOffset shift() {
        String packed = part("packed");
        int hours = packed == null ? number("hours", 0) : Integer.parseInt(packed.substring(0, packed.length() - 2));
        int minutes = packed == null ? number("minutes", 0) : Integer.parseInt(packed.substring(packed.length() - 2));
        int seconds = number("seconds", 0);
        if (hours > HOURS_MAX || minutes > 59 || seconds > 59) {
            throw Grammar.failed("time zone displacement out of range: \"" + text + "\"");
        }
        int shift = (hours * 60 + minutes) * 60 + seconds;
        return ZoneOffset.ofTotalSeconds(part("shift").equals("-") ? -shift : shift);
    }

    /** In the hour that a clock skips, the zone is as before; in the one it repeats, as after. */
    private static long instant(long wall, ZoneId zone) {
        LocalDateTime shown = LocalDateTime.ofEpochSecond(Math.floorDiv(wall, 1000000L),
            (int) Math.floorMod(wall, 1000000L) * 1000, ZoneOffset.UTC);
        ZoneOffsetTransition change = zone.getRules().getTransition(shown);
        ZoneOffset offset = change == null ? zone.getRules().getOffset(shown)
            : change.isGap() ? change.getOffsetBefore() : change.getOffsetAfter();
        return wall - offset.getTotalSeconds() * 1000000L;
    }
}
