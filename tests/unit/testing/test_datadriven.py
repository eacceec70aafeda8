"""The directive runner, tried on itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.testing.datadriven import Directive, MalformedFile, collect, run_file

STORY = """\
# A comment, kept.

echo a=1 "b=two words" flag
----
a=1 b=two words flag=

upper
  first
    second
----
FIRST
  SECOND

# An empty output.
echo
----

lines
----
----
one

two
----
----
"""


def answer(directive: Directive) -> str:
    match directive.command:
        case "echo":
            return " ".join(f"{key}={value}" for key, value in directive.args.items())
        case "upper":
            return directive.input.upper()
        case "lines":
            return "one\n\ntwo\n"
        case other:
            raise KeyError(other)


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REWRITE", raising=False)
    path = tmp_path / "story"
    path.write_text(STORY)
    return path


def test_a_file_that_agrees_passes_and_is_left_alone(story: Path) -> None:
    run_file(story, answer)
    assert story.read_text() == STORY


def test_a_difference_is_shown_and_nothing_is_written(story: Path) -> None:
    changed = STORY.replace("FIRST", "WRONG")
    story.write_text(changed)
    with pytest.raises(AssertionError) as failure:
        run_file(story, answer)
    assert "-WRONG\n+FIRST" in str(failure.value)
    assert "REWRITE=1" in str(failure.value)
    assert story.read_text() == changed


def test_rewrite_writes_the_answers(story: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story.write_text("upper\nx\n----\nold\n\nlines\n----\nold\n\n# end\n")
    monkeypatch.setenv("REWRITE", "1")
    run_file(story, answer)
    expected = "upper\nx\n----\nX\n\nlines\n----\n----\none\n\ntwo\n----\n----\n\n# end\n"
    assert story.read_text() == expected
    monkeypatch.delenv("REWRITE")
    run_file(story, answer)


def test_directives_know_where_they_stand(story: Path) -> None:
    lines: list[int] = []

    def record(directive: Directive) -> str:
        lines.append(directive.line)
        return answer(directive)

    run_file(story, record)
    assert lines == [3, 7, 15, 18]


def test_an_error_of_the_handler_names_the_place(story: Path) -> None:
    story.write_text("# one\nunknown\n----\n")
    with pytest.raises(KeyError) as failure:
        run_file(story, answer)
    assert failure.value.__notes__ == [f"{story}:2: unknown"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo\n", "no ----"),
        ('echo "a\n----\n', "quotation"),
        ("echo a=1 a=2\n----\n", "given twice"),
        ("lines\n----\n----\none\n", "not closed"),
    ],
)
def test_what_cannot_be_read_is_refused(story: Path, text: str, message: str) -> None:
    story.write_text(text)
    with pytest.raises(MalformedFile, match=message):
        run_file(story, answer)


def test_collect_finds_files_in_order_and_never_none(tmp_path: Path) -> None:
    for name in ("b", "a.txt", "sub/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in collect(tmp_path)] == ["a.txt", "b", "c"]
    with pytest.raises(AssertionError, match="no directive files"):
        collect(tmp_path / "nothing")
