r"""Java's ``.properties`` format, read and written as brokers do with their ``server.properties``.

The format is Latin-1 with ``\uXXXX`` escapes, regardless of an editor's encoding. If a key occurs twice the last value
applies, a line that ends with a backslash continues on the next one, and blanks at the end of a value belong to it:
Kafka removes them when it parses the value.

Source: clients/src/main/java/org/apache/kafka/common/utils/Utils.java (``loadProps``), java.util.Properties.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import javaproperties

from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MAX_BYTES = 4_194_304
"""Bytes of the largest file, far above any server.properties; a setting that names another kind of file must not fill
the memory."""


class PropertiesError(UnusableSettingsError):
    """A properties file can't be used; the message names the setting and the path and contains no part of the file."""


def read(data: bytes) -> dict[str, str]:
    r"""Return the properties of a file's content, in the order of their first mention.

    Raises:
        ValueError: A ``\u`` is not followed by four hexadecimal digits, which also stops a broker. Neither the error
            nor its context contains any of the content.
    """
    try:
        return javaproperties.loads(data)
    except javaproperties.InvalidUEscapeError:
        pass  # raised below, outside the handler: the caught error shows part of the value
    raise ValueError("it has a \\u that is not followed by four hexadecimal digits")


def read_file(path: Path, setting: str) -> dict[str, str]:
    """Return the properties of a file that a setting names.

    Raises:
        PropertiesError: The file can't be read or parsed.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        problem = "is not a properties file: it is above 4 MB" if len(data) > _MAX_BYTES else None
        if problem is None:
            return read(data)
    except OSError as error:
        problem = f"can't be read: {error.strerror}"
    except ValueError as error:
        problem = f"is not a properties file: {error}"
    raise PropertiesError(f"{setting}: {path} {problem}")


def write(values: Mapping[str, str]) -> str:
    """Return properties as text that Java, and :func:`read` after encoding, reads back unchanged.

    There is one line for each property, in the given order, ended by a newline. The text is ASCII, so the encoding does
    not matter. Nothing else is written, not even a date: results may be joined, with comment lines (``# ...``) between
    them.
    """
    return "".join(f"{javaproperties.join_key_value(key, value)}\n" for key, value in values.items())
