"""The base of all generated messages: requests to bytes, responses and records from bytes, at once or in slices."""

from __future__ import annotations

import asyncio
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from confplane.kraft.wire.codec import PlainReader, PlainWriter, Reader, RuleError, Writer
from confplane.kraft.wire.errors import WireError
from confplane.kraft.wire.structs import Struct, reading, writing

if TYPE_CHECKING:
    from collections.abc import Generator

_T = TypeVar("_T")

SLICE_S: Final = 0.002
"""The time in seconds for which decoding blocks the event loop before other tasks run."""


@dataclass(frozen=True, slots=True)
class Message(Struct):
    """A whole request, response or record. Generated classes name their API and their versions as class arguments."""

    NAME: ClassVar[str]
    """The name of the message, as spelled by Kafka, which is that of its class."""
    API_KEY: ClassVar[int | None]
    """The number of the API or of the kind of record; None for records of the log itself."""
    VERSIONS: ClassVar[range]
    """The versions that can be written and read."""
    FLEXIBLE_FROM: ClassVar[int | None]
    """The first flexible version, None if there is none."""

    def __init_subclass__(
        cls, *, api_key: int | None = None, versions: range | None = None, flexible_from: int | None = None
    ) -> None:
        cls.NAME = cls.__name__
        if versions is not None:  # not in the copy with slots that a dataclass makes of its class
            cls.API_KEY, cls.VERSIONS, cls.FLEXIBLE_FROM = api_key, versions, flexible_from

    @classmethod
    def flexible(cls, version: int) -> bool:
        """Return True for a flexible version (KIP-482)."""
        return cls.FLEXIBLE_FROM is not None and version >= cls.FLEXIBLE_FROM

    def encode(self, version: int) -> bytes:
        """Return the message as bytes, without its header.

        Raises:
            WireError: The version is unknown, or can't represent a field, or a value is out of range.
        """
        self._check(version)
        out = Writer() if self.flexible(version) else PlainWriter()
        try:
            writing(type(self), type(out), version).write(out, self)
        except (struct.error, ValueError) as error:
            raise WireError(self.NAME, None, str(error)) from None
        return bytes(out.out)

    @classmethod
    def decode(cls, data: bytes, version: int, at: int = 0) -> Self:
        """Return the message that ``data`` holds from ``at`` to its end.

        Raises:
            WireError: The bytes are not such a message; the error names message and offset.
        """
        return run(cls.steps(data, version, at))

    @classmethod
    def steps(cls, data: bytes, version: int, at: int) -> Generator[None, None, Self]:
        """Decode as :meth:`decode` does, and pause after each element of the message's arrays."""
        cls._check(version)
        reader = Reader(data, at) if cls.flexible(version) else PlainReader(data, at)
        made: Self = yield from guarded(cls.NAME, reader, reading(cls, type(reader), version).steps(reader))
        return made

    @classmethod
    def _check(cls, version: int) -> None:
        if version not in cls.VERSIONS:
            raise WireError(cls.NAME, None, f"version {version} is unknown, {cls.VERSIONS} are known")


def guarded(name: str, reader: Reader, steps: Generator[None, None, _T]) -> Generator[None, None, _T]:
    """Run the reading of a whole message. Each failure becomes a WireError with the message's name and the offset."""
    try:
        value = yield from steps
        if reader.at != reader.end:
            raise RuleError(f"{reader.end - reader.at} unread bytes follow the message")
    except (IndexError, struct.error):
        raise WireError(name, reader.at, "the bytes end too early") from None
    except ValueError as error:
        why = "a text is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise WireError(name, reader.at, why) from None
    return value


def run(steps: Generator[None, None, _T]) -> _T:
    """Return the result of a reading in steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: _T = done.value
            return value


async def run_in_slices(steps: Generator[None, None, _T]) -> _T:
    """Return the result of a reading in steps, and let other tasks run every :data:`SLICE_S` seconds."""
    until = time.perf_counter() + SLICE_S
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: _T = done.value
            return value
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
