"""The style guide, executed: what a reviewer need not look for.

Each rule is a function from one source file to its complaints. An exception to a rule stands in the
rule's table with its reason; there is no comment that switches a rule off.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.order import LONG

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "headwater"

MODULE_LINES_MAX = 500
LONGER_MODULES = {  # path below src/headwater, or in the repository -> why it may be longer
    "tests/unit/adapter_dialect/corpus.py": "a table of expressions",
}

# Who may read the machine's clock or draw a random number; everybody else is given one.
CLOCK_AND_CHANCE = {
    "base/clock.py": "the port itself",
    "base/retry.py": "jitter, from a Random that can be passed in",
    "testing/": "seeded, and the seed is printed",
}
SPARK_ACTIONS = ("compute/", "persist/spark.py", "testing/random_views.py")
NOT_DATAFRAMES = {"self", "gc", "itertools", "maintenance"}  # collect garbage, count upwards
BANNED_MODULES = {"utils", "util", "helpers", "helper", "manager", "misc", "common"}
BANNED_IN_CLASS_NAMES = ("Manager", "Helper", "Utils", "Misc")

SIMPLE_TYPES = re.compile(r"(?:int|Any|str|msgspec\.Raw|(?:list|dict|tuple|, |\[|\])+)+")

# Written in pieces, so that this file does not complain about itself.
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINE_PATHS = re.compile(r"(?<![\w./])/(?:wo" + r"rk|ro" + r"ot|ho" + r"me|Us" + r"ers)/")
REFERENCE = re.compile(r"`((?:\w+/)*\w+\.py)`")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".sql", ".java", ".yml", ".yaml", ".html", ""}


@cache
def _repository_files() -> tuple[Path, ...]:
    """Return the files that are, or are about to be, committed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(listing, cwd=ROOT, capture_output=True, check=False)
    if answer.returncode == 0:
        found = [ROOT / name for name in answer.stdout.decode().split("\0") if name]
    else:  # An unpacked archive has no git; then what is there is the repository.
        found = [p for top in ("src", "tests", "docs", "benches") for p in (ROOT / top).rglob("*")]
    return tuple(sorted(p for p in found if p.is_file() and "__pycache__" not in p.parts))


@dataclass(frozen=True)
class Module:
    """A source file; ``name`` is its path below the package."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return _tree(self.text)

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        return _nodes(self.text)


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(text)))


@cache
def _modules() -> list[Module]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [Module(p.relative_to(PACKAGE).as_posix(), p.read_text("utf-8")) for p in paths]


@cache
def _tests_and_benches() -> list[Module]:
    paths = sorted(p for top in ("tests", "benches") for p in (ROOT / top).rglob("*.py"))
    return [Module(p.relative_to(ROOT).as_posix(), p.read_text("utf-8")) for p in paths]


def _inside(module: Module, allowed: Iterable[str]) -> bool:
    return any(module.name == place or module.name.startswith(place) for place in allowed)


def _calls_and_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield every dotted name that is used (``time.time``) or imported (``random.Random``)."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, f"{alias.name}.") for alias in node.names)


def too_long(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX and module.name not in LONGER_MODULES:
        yield f"{lines} lines; split it by its nouns (limit {MODULE_LINES_MAX})"


def without_docstring(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield "the module has no docstring; it is the module's specification"


def clock_or_chance(module: Module) -> Iterator[str]:
    if _inside(module, CLOCK_AND_CHANCE):
        return
    clock = re.compile(
        r"(?:^|\.)(?:time\.time(?:_ns)?|datetime\.(?:now|utcnow|today)|date\.today)$"
    )
    for line, name in _calls_and_imports(module.nodes):
        if clock.search(name):
            yield f"line {line}: {name}; take a Clock"
        if name.startswith("random.") and name != "random.Random":
            yield f"line {line}: {name}; be given a seeded Random"
    for node in module.nodes:
        if not isinstance(node, ast.Call) or node.args or node.keywords:
            continue
        if ast.unparse(node.func) in {"Random", "random.Random"}:
            yield f"line {node.lineno}: a Random without a seed; be given one"


def prints(module: Module) -> Iterator[str]:
    if _inside(module, ("cli/", "testing/answers/__main__.py")):
        return
    for node in module.nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print":
            yield f"line {node.lineno}: print; only the command line speaks to a person"


def spark_actions(module: Module) -> Iterator[str]:
    """A call without arguments: ``list.count(x)`` is not meant, nor what is no DataFrame."""
    if _inside(module, SPARK_ACTIONS):
        return
    for node in module.nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = ast.unparse(node.func)
        if name.split(".")[-2] in NOT_DATAFRAMES or node.args or node.keywords:
            continue
        if node.func.attr in {"collect", "count", "toPandas", "toArrow"}:
            yield f"line {node.lineno}: {name}() starts a Spark job outside the Spark edges"


def vague_names(module: Module) -> Iterator[str]:
    for part in Path(module.name).with_suffix("").parts:
        if part in BANNED_MODULES:
            yield f"{part!r} says nothing; name it after what it is"
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and any(w in node.name for w in BANNED_IN_CLASS_NAMES):
            yield f"line {node.lineno}: class {node.name} says nothing"


Rule = Callable[[Module], Iterator[str]]


def decodes_by_itself(module: Module) -> Iterator[str]:
    """See base/decoding.py: a type that two threads look at first at once ends the process."""
    if module.name == "base/decoding.py":
        return
    for node in module.nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        types = [ast.unparse(k.value) for k in node.keywords if k.arg == "type"]
        if node.func.attr == "decode" and types and not SIMPLE_TYPES.fullmatch(types[0]):
            yield f"line {node.lineno}: decode by {types[0]} through headwater.base.decoding"


RULES: list[Rule] = [
    decodes_by_itself,
    too_long,
    without_docstring,
    clock_or_chance,
    prints,
    spark_actions,
    vague_names,
]


RULES_OF_TESTS: list[Rule] = [too_long, without_docstring, vague_names]


def _complaints(modules: Iterable[Module], rule: Rule) -> str:
    return "\n".join(f"{each.name}: {complaint}" for each in modules for complaint in rule(each))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_keeps_to_the_guide(rule: Rule) -> None:
    assert not _complaints(_modules(), rule)


@pytest.mark.parametrize("rule", RULES_OF_TESTS, ids=lambda rule: rule.__name__)
def test_so_do_tests_and_benches(rule: Rule) -> None:
    assert not _complaints(_tests_and_benches(), rule)


def _matches(pattern: re.Pattern[str], paths: Iterator[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def _texts() -> Iterator[Path]:
    """Yield the files a person wrote; golden bytes and directive files are data."""
    for path in _repository_files():
        if path.suffix in TEXT_SUFFIXES and "formats" not in path.parts:
            yield path


def test_nothing_is_left_unfinished() -> None:
    """What remains to be done is an issue, not a remark in the code."""
    found = _matches(UNFINISHED, (path for path in _texts() if path.suffix == ".py"))
    assert not found, "\n".join(found)


def test_what_a_text_refers_to_is_there() -> None:
    """A module or a test that a docstring or a page names, by its path or the end of it."""
    names = [path.relative_to(ROOT).as_posix() for path in _repository_files()]
    there = {"/".join(name.split("/")[-n:]) for name in names for n in range(1, 9)}
    missing = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in _texts()
        if path.suffix in {".py", ".md"} and path.name != "CHANGELOG.md"
        for named in REFERENCE.findall(path.read_text("utf-8"))
        if named not in there
    ]
    assert not missing, "\n".join(missing)


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = _matches(MACHINE_PATHS, _texts())
    assert not found, "\n".join(found)


def test_files_that_are_run_first_are_there() -> None:
    assert not [name for name in LONG if not (ROOT / name).is_file()]


def test_constraints_pin_everything_and_name_no_host() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert not [pin for pin in pins if not re.match(r"^[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+", pin)]
    assert not [line for line in lines if "://" in line or "--index" in line or " @ " in line]


SAMPLES: list[tuple[Rule, str]] = [
    (decodes_by_itself, "msgspec.json.decode(data, type=dict[str, Thing])"),
    (clock_or_chance, "import time\nstart = time.time()\n"),
    (clock_or_chance, "from time import time_ns\n"),
    (clock_or_chance, "import datetime\nx = datetime.datetime.now()\n"),
    (clock_or_chance, "from random import choice\n"),
    (clock_or_chance, "import random\n"),
    (clock_or_chance, "from random import Random\nx = Random()\n"),
    (prints, "print('hello')\n"),
    (spark_actions, "rows = updates.collect()\n"),
    (vague_names, "class StateManager:\n    pass\n"),
    (without_docstring, "x = 1\n"),
    (too_long, "\n" * (MODULE_LINES_MAX + 1)),
]


@pytest.mark.parametrize(("rule", "text"), SAMPLES)
def test_each_rule_finds_its_mistake(rule: Rule, text: str) -> None:
    """A rule that never complains is no rule."""
    assert list(rule(Module("persist/sample.py", text)))
