"""First words of docstrings: a noun phrase or an imperative names the subject, never a question word or a pronoun."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REFUSED = {"what", "whatever", "whether", "how", "who", "whom", "whose", "when", "where", "why", "which"}
REFUSED |= {"that", "it", "these", "those", "they", "others"}
SUSPECT = re.compile(rf"""["'](?:\\(?s:.)|[\s.,:;`'"])*(?:{"|".join(sorted(REFUSED))})\b""", re.IGNORECASE)
"""Quotes before a refused word, wherever they stand: few files have any, and to parse all takes seconds."""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string that stands alone: of modules, classes, functions, and behind attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text


def refused(source: str) -> list[int]:
    """Lines of the docstrings that begin with a refused word."""
    if not SUSPECT.search(source):
        return []
    return [
        line
        for line, text in docstrings(ast.parse(source))
        if (words := text.split()) and words[0].strip(".,:;`'\"").partition("'")[0].lower() in REFUSED
    ]


def test_docstrings_name_their_subject_first() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted(path for folder in ("app", "tests") for path in (ROOT / folder).rglob("*.py"))
        for line in refused(path.read_text("utf-8"))
    ]
    assert not found, "begin with a noun phrase or an imperative:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        '"""What a module does."""',
        'class A:\n    x: int\n    """Whether values are secrets."""',
        'def f():\n    """It\'s one."""',
        'class A:\n    EXTRA = 1\n    """Others set it."""',
        'async def f():\n    """\n    How it ends."""',
    ],
)
def test_question_words_are_found_wherever_docstrings_stand(source: str) -> None:
    assert len(refused(source)) == 1


def test_other_words_are_not() -> None:
    assert not refused('"""Howitzers, whatnots and items."""\nx = "What a value"\n')
