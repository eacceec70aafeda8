r"""What texts denote values: PostgreSQL's input functions, as patterns and tables. Pure data.

A text becomes a value in many places: a literal of a query, a parameter, a value of an INSERT, a
field of a COPY, and a column of text that a query casts. The first four are read in Python
(``adapter/sql/text.py``, ``adapter/sql/moments.py``), the last by Spark
(``compute/catalyst/java/Reader.java``). Both read by what stands here, and by nothing else, so that
a text means the same wherever it stands.

The patterns are in what Java and Python read alike, of ASCII and without regard to case, and each
is to match the whole text. ``(?<name>…)`` is a named group, ``\k<name>`` what it matched:
:func:`compiled` writes both as Python has them. What is no match of any is no text of the type;
what PostgreSQL takes and we do not is in :data:`UNSUPPORTED`, by name.

Dates are read with DateStyle ISO, MDY. A zone is a displacement, one of :data:`ABBREVIATIONS`
(PostgreSQL's default set), or a name of the IANA's database.

Kept by: this module. Relied on by: both readers; ``tests/spark/test_dialect.py`` holds them to
PostgreSQL.
"""

from __future__ import annotations

import re
from typing import Any, Final

BOOLEANS: Final = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), False),
}
DIGITS_MAX: Final = 1_000
"""No number of ours has as many: longer ones are out of range unread."""
YEAR_MAX: Final = 9999

_DIGITS = r"\d+(?:_\d+)*"
_BASES = r"0x(?<hex>(?:_?[0-9a-f])+)|0o(?<octal>(?:_?[0-7])+)|0b(?<binary>(?:_?[01])+)"
_SIGN = r"(?<sign>[+-]?)"

INTEGER: Final = rf"\s*{_SIGN}(?:{_BASES}|(?<digits>{_DIGITS}))\s*"
NUMERIC: Final = (
    rf"\s*{_SIGN}(?:{_BASES}"
    rf"|(?<digits>(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?))\s*"
)
FLOAT: Final = (
    rf"\s*{_SIGN}(?:(?<nan>nan)|(?<infinity>inf|infinity)"
    r"|(?<digits>(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))\s*"
)
UUID: Final = r"(?<open>\{?)(?<digits>(?:[0-9a-f]{4}-?){7}[0-9a-f]{4})(?<close>\}?)"
BYTES_HEX: Final = r"\\x(?<digits>(?:\s*[0-9a-f]{2})*)\s*(?<rest>.*)"
"""The pairs of digits, and what is none: empty if all is well."""
BYTES_ESCAPED: Final = r"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*"

# --- dates and times ------------------------------------------------------------------------------

MONTHS: Final = {
    **dict.fromkeys(("jan", "january"), 1),
    **dict.fromkeys(("feb", "february"), 2),
    **dict.fromkeys(("mar", "march"), 3),
    **dict.fromkeys(("apr", "april"), 4),
    "may": 5,
    **dict.fromkeys(("jun", "june"), 6),
    **dict.fromkeys(("jul", "july"), 7),
    **dict.fromkeys(("aug", "august"), 8),
    **dict.fromkeys(("sep", "sept", "september"), 9),
    **dict.fromkeys(("oct", "october"), 10),
    **dict.fromkeys(("nov", "november"), 11),
    **dict.fromkeys(("dec", "december"), 12),
}
_MONTH = rf"(?<name>{'|'.join(MONTHS)})"
_WEEKDAY = (
    r"(?:(?:mon|monday|tue|tues|tuesday|wed|weds|wednesday|thu|thur|thurs|thursday|fri|friday"
    r"|sat|saturday|sun|sunday)[\s,]+)?"
)
# A number of three digits and more is a year wherever it stands; one of two is of 1970 to 2069.
_YEAR, _LONG_YEAR = r"(?<year>\d{1,7})", r"(?<year>\d{3,7})"
_NUMBER, _DAY, _SEPARATOR = r"(?<month>\d{1,2})", r"(?<day>\d{1,2})", r"(?<separator>[-/.])"
_AGAIN = r"\k<separator>"
_DATES = (
    rf"{_LONG_YEAR}{_SEPARATOR}{_NUMBER}{_AGAIN}{_DAY}",
    r"(?<year>\d{4})(?<month>\d{2})(?<day>\d{2})",
    rf"{_NUMBER}{_SEPARATOR}{_DAY}{_AGAIN}{_YEAR}",
    rf"{_WEEKDAY}{_MONTH}[\s,]*{_DAY}[\s,]+{_YEAR}",
    rf"{_WEEKDAY}{_DAY}\s*{_MONTH}[\s,]*{_YEAR}",
    rf"{_DAY}{_SEPARATOR}{_MONTH}{_AGAIN}{_YEAR}",
    rf"{_LONG_YEAR}{_SEPARATOR}{_MONTH}{_AGAIN}{_DAY}",
    rf"{_MONTH}{_SEPARATOR}{_DAY}{_AGAIN}{_YEAR}",
    rf"(?<year>\d{{4}})\s+{_MONTH}\s+{_DAY}",
    r"(?<year>\d{4})[-.](?<yearday>\d{3})",
    r"(?<year>\d{2})(?<month>\d{2})(?<day>\d{2})",
)
_TIME = (
    r"(?:(?<hour>\d{1,3}):(?<minute>\d{1,2})(?::(?<second>\d{1,2})(?:\.(?<fraction>\d*))?)?"
    r"|(?<clock>\d{4}|\d{6})(?:\.(?<part>\d*))?)(?:\s*(?<half>am|pm)(?![a-z]))?"
)
_OFFSET = (
    r"(?<shift>[+-])(?:(?<packed>\d{3,4})"
    r"|(?<hours>\d{1,2})(?::(?<minutes>\d{1,2})(?::(?<seconds>\d{1,2}))?)?)"
)
_ZONE = r"(?<zone>(?!t\d|(?:ad|bc)(?!\w))[a-z][a-z0-9_]*(?:[-+/][a-z0-9_]+)*)"
_ERA = r"(?:\s+(?<era>ad|bc))?"

MOMENTS: Final = (
    *(
        # A sign right after a date is taken for one more separator by PostgreSQL too, but a plus.
        rf"\s*{date}(?:(?:T|[\s,]+){_TIME}(?:\s*{_OFFSET}|\s*{_ZONE})?)?{_ERA}\s*"
        for date in _DATES
    ),
    *(rf"\s*{date}(?:(?:\s+|(?=\+)){_OFFSET}|\s*{_ZONE}){_ERA}\s*" for date in _DATES),
    # As date(1) writes it: Fri Jan  5 10:00:00 PST 2024.
    rf"\s*{_WEEKDAY}{_MONTH}\s+{_DAY}\s+{_TIME}(?:\s+{_ZONE})?\s+{_LONG_YEAR}\s*",
)
"""Dates, each with a time and a zone or without. Which parts a text has, its groups say."""

EPOCH: Final = r"\s*epoch\s*"
"""1970-01-01 00:00 UTC."""
POSIX_ZONE: Final = r"[a-z]{3,}[-+]\d.*"

ABBREVIATIONS: Final[dict[str, int]] = {
    name: seconds
    for seconds, names in {
        -36000: "hst taht",
        -34200: "mart",
        -32400: "akst gamt",
        -28800: "akdt pst",
        -25200: "mst pdt",
        -21600: "cst galt mdt",
        -18000: "act cdt cot est pet",
        -14400: "amt ast bot edt",
        -12600: "nft nst",
        -10800: "adt bra brt clst gft pmst pyst uyt wgt",
        -9000: "ndt",
        -7200: "brst fnt pmdt uyst wgst",
        -3600: "azot egt fnst",
        0: "azost egst gmt uct ut utc wet z zulu",
        3600: "bst cet met mez wat wetdst",
        7200: "bdst cest cetdst eet ist mest mesz metdst sast",
        10800: "eat eest eetdst fet idt",
        12600: "irt",
        14400: "msd mut ret sct",
        16200: "aft",
        18000: "must mvt pkt tft tjt uzt",
        20700: "npt",
        21600: "almt bdt btt kgst pkst uzst xjt yekst",
        23400: "mmt",
        25200: "almst cxt ict wast",
        28800: "awst bnt bort cct hkt myt pht wadt",
        31500: "acwst",
        32400: "awsst jayt jst kst pwt ulast wdt",
        34200: "acst cast",
        36000: "aest chut ddut kdt ligt mpt pgt trut yapt",
        37800: "acdt acsst cadt lhst sadt",
        39600: "aedt aesst pont vut",
        43200: "fjt gilt mht nzst nzt tvt wakt wft",
        45900: "chast",
        46800: "fjst nzdt tot",
        49500: "chadt",
    }.items()
    for name in names.split()
}
"""Seconds east of Greenwich."""
_MOVED = (
    "amst anast anat arst art azst azt ckt clt davt easst east fkst fkt gest get gyt iot "
    "irkst irkt kgt kost krast krat lhdt lint lkt magst magt mawt msk novst novt nut "
    "omsst omst petst pett pyt sgt tkt tmt ulat vet vlast vlat volt yakst yakt yekt"
)
MOVED: Final = frozenset(_MOVED.split())
"""Abbreviations that meant one thing and then another."""

UNSUPPORTED: Final[dict[str, tuple[tuple[str, str, str], ...]]] = {
    "numeric": (
        (
            r"\s*[+-]?(?:nan|inf|infinity)\s*",
            "NaN or infinity as a numeric",
            "double precision has both.",
        ),
    ),
    "float": (
        (r"\s*[+-]?0x[0-9a-f]+.*", "a float in hexadecimal digits", "Write it in decimal digits."),
    ),
    "moment": (
        (
            r"\s*[+-]?infinity\s*",
            "an infinite date or timestamp",
            "Use NULL, or a date that nothing else has.",
        ),
        (
            r"\s*(?:now|today|tomorrow|yesterday)(?:\s+\d{1,2}:[\d:.]+)?\s*",
            "a date that depends on when it is read",
            "Write now() or current_date where the query is read.",
        ),
        (r"\s*j\d+\s*", "a Julian day", "Write year, month and day."),
        (r".*\ballballs\b.*", "a time of day in words", "Write 00:00 UTC."),
    ),
}
"""What PostgreSQL reads and we refuse, what it is called, and what to write instead."""
REFUSED: Final = {
    "bc": ("a year before Christ", "There are the years from 1 to 9999."),
    "year": (f"a year after {YEAR_MAX}", "There are the years from 1 to 9999."),
    "moved": (
        "an abbreviation of a time zone that meant one thing and then another",
        "Write the name of the zone, such as Europe/Moscow.",
    ),
    "posix": ("a time zone in POSIX's form", "Write a displacement, such as +03:00."),
}
"""The same, of what only a look at the parts of a text finds."""


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern as Python has it."""
    named = re.sub(r"\\k<(\w+)>", r"(?P=\1)", pattern)
    return re.compile(named.replace("(?<", "(?P<"), re.ASCII | re.IGNORECASE | re.DOTALL)


def as_data() -> dict[str, Any]:
    """The grammar, for who reads it in another language."""
    return {
        "booleans": BOOLEANS,
        "digits_max": DIGITS_MAX,
        "year_max": YEAR_MAX,
        "patterns": {
            "integer": INTEGER,
            "numeric": NUMERIC,
            "float": FLOAT,
            "uuid": UUID,
            "hex": BYTES_HEX,
            "escaped": BYTES_ESCAPED,
            "epoch": EPOCH,
            "posix": POSIX_ZONE,
        },
        "moments": MOMENTS,
        "months": MONTHS,
        "abbreviations": ABBREVIATIONS,
        "moved": sorted(MOVED),
        "unsupported": UNSUPPORTED,
        "refused": {key: name for key, (name, _) in REFUSED.items()},
    }
