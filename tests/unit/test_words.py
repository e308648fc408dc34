"""Words of docstrings and messages.

The first word of a docstring is of a noun phrase or an imperative, never a question word or a pronoun. No text in the
code of the service has a phrase that the guide for words avoids, except as often as ``words.txt`` allows for its file.
"""

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


AVOIDED = re.compile(
    r"""\b(?:
    (?<!there\ )(?<!There\ )(?:is|are)\ no\b(?!\ (?:longer|more|less|later|earlier|other|such))
    |(?<!there\ )(?<!There\ )(?:is|are)\ none\b
    |anew|whoever|whomever|as\ ever|meanwhile|begin\ of|the\ like
    |(?:by|of|what|that|from|to)\ others\b
    |[Oo]thers\ (?:change|changed|make|made|set|write|wrote)\b
    |behind\ the\ (?:answer|moment|response|write)|in\ front\ of
    )\b""",
    re.VERBOSE,
)
"""Phrases that the guide for words replaces."""
ALLOWED = Path(__file__).with_name("words.txt")


def avoided(source: str) -> list[str]:
    """Phrases to avoid in the strings of a module."""
    if not AVOIDED.search(source):
        return []
    return [
        phrase[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for phrase in AVOIDED.finditer(node.value)
    ]


def test_texts_avoid_the_phrases_of_the_guide() -> None:
    allowed = {path: int(number) for path, number in (line.split() for line in ALLOWED.read_text().splitlines())}
    found = {
        str(path.relative_to(ROOT)): phrases
        for path in sorted((ROOT / "app").rglob("*.py"))
        if (phrases := avoided(path.read_text("utf-8")))
    }
    more = {path: phrases for path, phrases in found.items() if len(phrases) > allowed.get(path, 0)}
    assert not more, "write these as public documentation does"
    less = {path: number for path, number in allowed.items() if len(found.get(path, ())) < number}
    assert not less, "reduce the numbers in words.txt, which may only shrink"


@pytest.mark.parametrize(
    "text", ["'x' is no time", "changes by others", "encoded anew", "What others wrote", "is none"]
)
def test_a_phrase_of_the_guide_is_found_in_every_string(text: str) -> None:
    assert len(avoided(f'x = f"a {{1}} {text}"')) == 1


@pytest.mark.parametrize(
    "text", ["there is no such topic", "it is no longer so", "all others", "Returns None: x is None"]
)
def test_phrases_of_other_texts_are_not_avoided(text: str) -> None:
    assert avoided(f'x = "{text}"') == []
