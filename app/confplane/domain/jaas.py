"""The form of ``sasl.jaas.config``: one login module with its control flag and options, closed by a semicolon.

::

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="...";

The value holds passwords. No error repeats any part of it, not even the name of an option: text in the wrong place may
be a secret.

Source: clients/src/main/java/org/apache/kafka/common/security/{JaasConfig,JaasContext}.java, the documentation of
java.io.StreamTokenizer.
"""

from __future__ import annotations

from typing import Final

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_QUOTES: Final = "\"'"
_DIGITS: Final = "0123456789"
_PUNCTUATION: Final = frozenset(chr(code) for code in range(0x21, 0xA0) if not chr(code).isalnum()) - set("-_$.")
"""Characters that end a word: those below U+00A0, except letters, digits and four further characters that words may
contain."""


class JaasError(ValueError):
    """A value that brokers could not use. The message has the rule and the position, and no part of the value."""


def check_jaas(value: str) -> None:
    """Refuse a value that is not exactly one login module.

    Raises:
        JaasError: A rule is broken; the message names it, counting entries and options from 1.
    """
    tokens = _Tokens(value)
    entries = 0
    while not tokens.at_end():
        entries += 1
        _entry(tokens, entries)
    if not entries:
        raise JaasError("sasl.jaas.config names no login module")
    if entries > 1:
        raise JaasError(f"sasl.jaas.config holds {entries} login modules where exactly one is accepted")


def _entry(tokens: _Tokens, number: int) -> None:
    where = f"sasl.jaas.config, login module {number}"
    if tokens.next().word is None:
        raise JaasError(f"{where}: it begins with no class name")
    if tokens.at_end():
        raise JaasError(f"{where}: the control flag is missing")
    flag = tokens.next().word
    if flag is None or flag.lower() not in _FLAGS:
        raise JaasError(f"{where}: the control flag is not one of {', '.join(sorted(_FLAGS))}")
    option = 0
    while not tokens.at_end():
        token = tokens.next()
        if token.mark == ";":
            return
        option += 1
        if token.word is None:
            raise JaasError(f"{where}: option {option} has no name; close the entry with a semicolon")
        if tokens.next().mark != "=" or tokens.next().word is None:
            raise JaasError(
                f"{where}: option {option} has no value; write name=value, with quotes around what is not a plain word"
            )
    raise JaasError(f"{where}: the closing semicolon is missing")


class _Token:
    """A word, quoted or not, or a mark. A number, which JAAS does not use, is neither."""

    __slots__ = ("mark", "word")

    def __init__(self, *, word: str | None = None, mark: str | None = None) -> None:
        self.word = word
        self.mark = mark


class _Tokens:
    """Reads a text as Java's StreamTokenizer does under Kafka's settings: comments, quotes, numbers, words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._skip()

    def at_end(self) -> bool:
        """Return True if only blanks and comments are left."""
        return self._at >= len(self._text)

    def next(self) -> _Token:
        """Return the next token. At the end, return one that is neither word nor mark."""
        if self.at_end():
            return _Token()
        token = self._read()
        self._skip()
        return token

    def _read(self) -> _Token:
        char = self._text[self._at]
        if char in _QUOTES:
            return _Token(word=self._quoted(char))
        if char in _DIGITS or char in "-.":
            return self._number()
        if char in _PUNCTUATION:
            self._at += 1
            return _Token(mark=char)
        begin = self._at
        while not self.at_end() and self._text[self._at] > " " and self._text[self._at] not in _PUNCTUATION:
            self._at += 1
        return _Token(word=self._text[begin : self._at])

    def _number(self) -> _Token:
        begin = self._at
        if self._text[self._at] == "-":
            self._at += 1
            if self._peek() not in (*_DIGITS, "."):
                return _Token(mark="-")
        point = False
        while self._peek() in (*_DIGITS, ".") and not (self._peek() == "." and point):
            point = point or self._peek() == "."
            self._at += 1
        return _Token(mark=self._text[begin : self._at]) if self._at - begin == 1 and point else _Token()

    def _quoted(self, quote: str) -> str:
        """Read up to the closing quote, or the end of the line."""
        self._at += 1
        found: list[str] = []
        while not self.at_end() and self._text[self._at] not in (quote, "\n", "\r"):
            if self._text[self._at] == "\\":
                self._at += 1
            if not self.at_end():
                found.append(self._text[self._at])
                self._at += 1
        if self._peek() == quote:
            self._at += 1
        return "".join(found)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _skip(self) -> None:
        """Skip blanks and comments; a single slash begins a comment as well."""
        while not self.at_end():
            if self._text[self._at] <= " ":
                self._at += 1
            elif self._text.startswith("/*", self._at):
                end = self._text.find("*/", self._at + 2)
                self._at = len(self._text) if end < 0 else end + 2
            elif self._text[self._at] == "/":
                while not self.at_end() and self._text[self._at] not in "\r\n":
                    self._at += 1
            else:
                return
