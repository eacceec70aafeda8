"""Texts of Spark SQL as terms: the texts that Catalyst's own printer makes of what terms can say.

    term_of(expression, names)  =  the term of its text, of its type;  NotNative: anything else

Every text here has been read back by Spark and compared with what it meant, so it is well formed;
what is not known for sure is not guessed at. The type that follows from the rules of ``term.py``
must be the type that Spark gave the expression.

Dates are computed with intervals of months, years and days where both are literals.

Pure. Kept by: this module, against Spark in ``tests/spark/test_native.py``. Relied on by:
``native.py``.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Context, Decimal
from itertools import zip_longest
from typing import Any, Final, NoReturn

from headwater.compute.dataflow import term as terms
from headwater.compute.dataflow.term import Constant, IsNull, NotNative, Term
from headwater.compute.ir.expression import NAME, Expression

_TOKEN: Final = re.compile(
    rf"\s*(?:(?P<string>'[^'\\]*')|(?P<number>\d+(?:\.\d+)?(?:BD|[DLSY])?)(?![\w.])"
    rf"|(?P<name>{NAME.pattern})(?![\w.])|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<mark><=>|<=|>=|<>|!=|[-+*/%=<>(),]))"
)
_COMPARISONS: Final = ("=", "<", "<=", ">", ">=", "<>", "!=", "<=>")
_INTEGERS: Final = {"": "int", "L": "bigint", "S": "smallint", "Y": "tinyint"}
_TYPE: Final = re.compile(r"\s*([A-Za-z_]+(?:\(\s*\d+\s*,\s*\d+\s*\))?)\s*\)")
_MONTHS: Final = {"MONTH": 1, "YEAR": 12}
_EXACT: Final = Context(prec=80)
"""Twice as many digits as a decimal may have."""


def term_of(expression: Expression, names: Mapping[str, Term]) -> Term:
    """Return the term of an expression, where these stand for its columns."""
    found = _Reader(expression.text, names).whole()
    if found.type != expression.type:
        found = terms.widened(found, expression.type) if _is_null(found) else found
    if found.type != expression.type:
        raise NotNative(f"{expression.text} is {expression.type}, not {found.type}")
    return found


def _is_null(term: Term) -> bool:
    return isinstance(term, Constant) and term.value is None


class _Reader:
    """A text, read from left to right."""

    def __init__(self, text: str, names: Mapping[str, Term]) -> None:
        self._text, self._names, self._at, self._depth = text, names, 0, 0

    def whole(self) -> Term:
        found = self._either()
        if self._text[self._at :].strip():
            self._refuse()
        return found

    # ---- words -------------------------------------------------------------------------------

    def _refuse(self) -> NoReturn:
        raise NotNative(f"{self._text[self._at : self._at + 40]!r}")

    def _next(self) -> tuple[str, str]:
        """Return the kind and the text of what comes, and go past it; nothing, at the end."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                self._refuse()
            return "", ""
        self._at = found.end()
        assert found.lastgroup is not None
        return found.lastgroup, found[found.lastgroup]

    def _takes(self, *words: str) -> str | None:
        """Go past the first of these that comes, if one does."""
        before = self._at
        kind, text = self._next()
        if kind in ("word", "mark") and text.upper() in words:
            return text.upper()
        self._at = before
        return None

    def _must(self, *words: str) -> str:
        return self._takes(*words) or self._refuse()

    # ---- operators, the loosest first ----------------------------------------------------------

    def _either(self) -> Term:
        if self._depth == terms.DEPTH_MAX:
            self._refuse()
        self._depth += 1
        found = self._both()
        while self._takes("OR"):
            found = terms.logic("OR", found, self._both())
        self._depth -= 1
        return found

    def _both(self) -> Term:
        found = self._not()
        while self._takes("AND"):
            found = terms.logic("AND", found, self._not())
        return found

    def _not(self) -> Term:
        return terms.negated(self._not()) if self._takes("NOT") else self._comparison()

    def _comparison(self) -> Term:
        left = self._sum()
        operator = self._takes(*_COMPARISONS, "IS", "IN", "LIKE", "NOT")
        match operator:
            case None:
                return left
            case "=" | "<" | "<=" | ">" | ">=":
                return terms.compared(operator, left, self._sum())
            case "<>" | "!=":
                return terms.negated(terms.compared("=", left, self._sum()))
            case "<=>":
                self._must("TRUE")
                return terms.first((left, Constant(False, terms.BOOLEAN)))
            case "IS":
                negated = self._takes("NOT")
                self._must("NULL")
                return terms.negated(IsNull(left)) if negated else IsNull(left)
            case "NOT":
                return terms.negated(self._test(left, self._must("IN", "LIKE")))
            case _:
                return self._test(left, operator)

    def _test(self, left: Term, operator: str) -> Term:
        if operator == "LIKE":
            kind, text = self._next()
            return terms.like(left, text[1:-1]) if kind == "string" else self._refuse()
        self._must("(")
        return self._one_of(left, self._listed())

    def _one_of(self, left: Term, listed: list[Term]) -> Term:
        if terms.may_fail(left) or not all(isinstance(one, Constant) for one in listed):
            self._refuse()
        found = [terms.compared("=", left, one) for one in listed]
        while len(found) > 1:  # In pairs: a list is long sooner than it is deep.
            pairs = zip_longest(found[::2], found[1::2])
            found = [terms.logic("OR", a, b) if b is not None else a for a, b in pairs]
        return found[0]

    def _listed(self) -> list[Term]:
        """Return what stands between parentheses; the first is behind us."""
        found = [self._either()]
        while self._must(",", ")") == ",":
            found.append(self._either())
        return found

    def _sum(self) -> Term:
        found = self._product()
        while operator := self._takes("+", "-"):
            if self._takes("INTERVAL"):
                found = self._shifted(found, 1 if operator == "+" else -1)
            else:
                found = _folded(operator, found, self._product())
        return found

    def _product(self) -> Term:
        found = self._single()
        while operator := self._takes("*", "%"):
            found = _folded(operator, found, self._single())
        return found

    # ---- what stands alone ---------------------------------------------------------------------

    def _single(self) -> Term:
        kind, text = self._next()
        match kind:
            case "string":
                return Constant(text[1:-1], "string")
            case "number":
                return _number(text)
            case "name":
                return self._names[text] if text in self._names else self._refuse()
            case "word":
                return self._called(text.upper())
            case "mark" if text == "(":
                found = self._either()
                self._must(")")
                return found
            case "mark" if text == "-":
                match self._single():
                    case Constant(int(value), type_):
                        return Constant(-value, type_)
                    case Constant(Decimal() as value, type_):
                        return Constant(value.copy_negate(), type_)  # A minus rounds to 28 digits.
                    case _:
                        pass
        return self._refuse()

    def _called(self, word: str) -> Term:
        match word:
            case "TRUE" | "FALSE":
                return Constant(word == "TRUE", terms.BOOLEAN)
            case "DATE":
                kind, text = self._next()
                if kind != "string":
                    self._refuse()
                return Constant(_date(text[1:-1]), "date")
            case "CASE":
                return self._case()
            case _:
                self._must("(")
        if word == "CAST":
            return self._cast()
        if word in ("EXTRACT", "DATE_PART"):
            return self._part(word)
        arguments = self._listed()
        match word, arguments:
            case "YEAR", [of]:
                return terms.year(of)
            case "BETWEEN", [of, low, high]:
                above = terms.compared(">=", of, low)
                return terms.logic("AND", above, terms.compared("<=", of, high))
            case "COALESCE", _:
                return terms.first(tuple(arguments))
            case "ISNULL", [of]:
                return IsNull(of)
            case "ISNOTNULL", [of]:
                return terms.negated(IsNull(of))
            case "IF", [condition, chosen, other]:
                return terms.choice(((condition, chosen),), other)
            case "DATE_ADD", [Constant(date() as day, "date"), Constant(int() as days, _)]:
                return Constant(_in_range(day, days), "date")
            case _:
                return self._refuse()

    def _case(self) -> Term:
        branches = []
        last: Term | None = None
        while (word := self._must("WHEN", "ELSE", "END")) == "WHEN":
            condition = self._either()
            self._must("THEN")
            branches.append((condition, self._either()))
        if word == "ELSE":
            last = self._either()
            self._must("END")
        return terms.choice(tuple(branches), last) if branches else self._refuse()

    def _cast(self) -> Term:
        of: Term = Constant(None, "void") if self._takes("NULL") else self._either()
        self._must("AS")
        found = _TYPE.match(self._text, self._at)
        if found is None:
            self._refuse()
        self._at = found.end()
        return terms.widened(of, re.sub(r"\s", "", found[1].lower()))

    def _part(self, word: str) -> Term:
        """Return what is extracted of a date, or of a literal interval of days."""
        if word == "DATE_PART":
            kind, text = self._next()
            if kind != "string" or text.upper() != "'YEAR'":
                self._refuse()
            self._must(",")
        elif self._must("YEAR", "DAY") == "DAY":
            self._must("FROM")
            self._must("INTERVAL")
            days = self._quoted()
            self._must("DAY")
            self._must(")")
            return Constant(days, "int")
        else:
            self._must("FROM")
        of = self._either()
        self._must(")")
        return terms.year(of)

    def _quoted(self) -> int:
        kind, text = self._next()
        if kind != "string" or not re.fullmatch(r"'-?\d{1,6}'", text):
            self._refuse()
        return int(text[1:-1])

    def _shifted(self, of: Term, sign: int) -> Term:
        """Return a literal date some months or years away."""
        amount = sign * self._quoted()
        months = amount * _MONTHS[self._must(*_MONTHS)]
        if not isinstance(of, Constant) or not isinstance(of.value, date):
            self._refuse()
        start = of.value
        years, month = divmod(start.year * 12 + start.month - 1 + months, 12)
        if not 1 <= years <= 9999:
            self._refuse()
        day = min(start.day, monthrange(years, month + 1)[1])
        return Constant(date(years, month + 1, day), "date")


def _folded(operator: Any, left: Term, right: Term) -> Term:
    """Return the term of two numbers: of two literal decimals, another one."""
    found = terms.arithmetic(operator, left, right)
    if (
        isinstance(left, Constant)
        and isinstance(right, Constant)
        and isinstance(left.value, Decimal)
        and isinstance(right.value, Decimal)
    ):
        one, other = left.value, right.value
        exactly = {"+": _EXACT.add, "-": _EXACT.subtract, "*": _EXACT.multiply}[operator]
        return Constant(exactly(one, other), found.type)
    return found


def _number(text: str) -> Constant:
    if text.endswith("BD"):
        value = Decimal(text[:-2])
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int), "a number"
        scale = max(0, -exponent)
        return Constant(value, f"decimal({max(len(digits), scale, 1)},{scale})")
    if text.endswith("D"):
        return Constant(float(text[:-1]), "double")
    suffix = text[-1] if text[-1] in "LSY" else ""
    digits_only = text[:-1] if suffix else text
    if not digits_only.isdigit():
        raise NotNative(f"the number {text}")
    return Constant(int(digits_only), _INTEGERS[suffix])


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise NotNative(f"the date {text!r}") from error


def _in_range(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError as error:
        raise NotNative(f"{days} days from {day}") from error
