"""Consistency of one broker's merged configs: they must fit together, and be reachable from the current ones.

A rule about a value of the broker's unknown file gives a warning, never an error.

Source: core/src/main/scala/kafka/server/{DynamicBrokerConfig,KafkaConfig}.scala,
core/src/main/scala/kafka/log/LogCleaner.scala.
"""

from __future__ import annotations

import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confplane.domain.broker_keys import listener_key
from confplane.domain.definitions import ConfigValueError, parse
from confplane.domain.errors import ErrorList, InvalidRequestError
from confplane.domain.listeners import ADVERTISED, LISTENERS, PROTOCOL_MAP, ListenersError, read_listeners
from confplane.domain.numbers import java_trim
from confplane.domain.texts import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confplane.domain.broker_levels import ConfigLevels
    from confplane.domain.config_rules import ConfigValue
    from confplane.domain.definitions import Catalog
    from confplane.domain.listeners import BrokerListeners

_NO_POINTERS: Final[Mapping[str, str]] = MappingProxyType({})
_FLUSH: Final = "log.flush.interval.ms"
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
POOLS: Final = frozenset(
    {
        *_THREADS,
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
    }
)
"""The sizes of pools of threads, which a broker changes to between half and double of the present size."""
_CLEANER_THREADS: Final = "log.cleaner.threads"
_DEDUPE: Final = "log.cleaner.dedupe.buffer.size"
_DEDUPE_PER_THREAD: Final = 1024 * 1024
_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_MECHANISMS: Final = "sasl.enabled.mechanisms"
_PER_IP: Final = "max.connections.per.ip"
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_HOST: Final = re.compile(r"[0-9a-zA-Z\-%._:]*")
# The retention and roll times of logs, each in order of precedence with the factor to milliseconds.
_RETENTION: Final = (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000))
_ROLL: Final = (("log.roll.ms", 1), ("log.roll.hours", 3_600_000))
_JITTER: Final = (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000))
_LISTENER_KEYS: Final = (LISTENERS, ADVERTISED, PROTOCOL_MAP)
_UNLIMITED: Final = -1
_LIKE_TOTAL: Final = -2


class _EffectiveValues:
    """The effective values of one broker, and whether they are known."""

    def __init__(self, levels: ConfigLevels) -> None:
        self.levels = levels
        self.catalog = levels.catalog
        self.merged = levels.merged()

    def text(self, name: str) -> str | None:
        """Return a value as set, else the value of a listener's base, else the default."""
        if name in self.merged:
            return self.merged[name]
        if (parts := listener_key(self.catalog, name)) is not None:
            return self.text(parts.base)
        definition = self.catalog.broker.get(name)
        return None if definition is None else definition.default

    def value(self, name: str) -> ConfigValue | None:
        """Return a parsed value. Returns None if there is no value or it does not parse."""
        text = self.text(name)
        parts = listener_key(self.catalog, name)
        definition = self.catalog.broker.get(name if parts is None else parts.base)
        if text is None or definition is None:
            return None
        try:
            return parse(definition, text)
        except ConfigValueError:
            return None

    def integer(self, name: str) -> int | None:
        """Return a whole number, or None if there is none."""
        found = self.value(name)
        return found if isinstance(found, int) else None

    def known(self, *names: str) -> bool:
        """Return True if all of these are known, that is, if no unknown file could decide any of them."""
        return not any(
            self.levels.is_assumed(name)
            and ((parts := listener_key(self.catalog, name)) is None or self.levels.is_assumed(parts.base))
            for name in names
        )

    def time(self, names: tuple[tuple[str, int], ...]) -> int | None:
        """Return a time in milliseconds, given in one of several units."""
        for name, factor in names:
            if (found := self.integer(name)) is not None:
                return found * factor
        return None


class _MergedCheck:
    def __init__(self, before: ConfigLevels, after: ConfigLevels, pointers: Mapping[str, str]) -> None:
        self.catalog = after.catalog
        self.before = _EffectiveValues(before)
        self.after = _EffectiveValues(after)
        self.pointers = pointers
        self.warnings: list[str] = []
        self.errors = ErrorList()
        self.changed = {
            name
            for name in self.before.merged.keys() | self.after.merged.keys()
            if self.before.merged.get(name) != self.after.merged.get(name)
        }

    def refuse(self, text: str, *names: str) -> None:
        """Refuse with the pointer of the first of these names that was given; only warn if any of them is not known."""
        if not self.after.known(*names):
            self.warnings.append(f"{text}, if the broker's own file leaves Kafka's defaults; it is not known here")
            return
        pointer = next((self.pointers[name] for name in names if name in self.pointers), None)
        self.errors.add(InvalidRequestError(f"Invalid dynamic configuration: {text}", pointer=pointer))


def check_merged(before: ConfigLevels, after: ConfigLevels, *, pointers: Mapping[str, str] = _NO_POINTERS) -> list[str]:
    """Check the merged configs of one broker after a change.

    Args:
        before: The effective values now, without the entries that brokers ignore.
        after: The effective values after the change.
        pointers: Key -> JSON pointer, for errors.

    Returns:
        Warnings, each a sentence.

    Raises:
        InvalidRequestError: The values contradict each other, or a broker that runs with the earlier values can't
            change to them.
    """
    check = _MergedCheck(before, after, pointers)
    if check.changed:
        _threads(check)
        _times(check)
        _cleaner(check)
        _local_retention(check)
        _connections(check)
        _listeners(check)
        _mechanisms(check)
        check.errors.raise_all()
    return check.warnings


def _threads(check: _MergedCheck) -> None:
    """Check that a pool is resized to between half and double of its size."""
    names = set(_THREADS)
    for name in check.before.merged.keys() | check.after.merged.keys():
        parts = listener_key(check.catalog, name)
        if parts is not None and parts.base == "num.network.threads":
            names.add(name)
    for name in sorted(names):
        old, new = check.before.integer(name), check.after.integer(name)
        parts = listener_key(check.catalog, name)
        moved = name in check.changed or (parts is not None and parts.base in check.changed)
        if not moved or old is None or new is None:
            continue
        if name == _CLEANER_THREADS and check.after.value("log.cleaner.enable") is False:
            continue
        if new < 1:
            check.refuse(f"{name} must be at least 1", name)
        elif not (check.before.known(name) and check.after.known(name)):
            check.warnings.append(
                f"{clipped(name)}: brokers resize to between half and double of what they run with, which their own "
                "file decides and is not known here; a step beyond is ignored until a restart"
            )
        elif not old // 2 <= new <= 2 * old:
            check.refuse(
                f"{clipped(name)} can be between {max(1, old // 2)} and {2 * old} next, half and double of the "
                f"{old} that the broker runs with",
                name,
            )


def pool_bounds(static: str, value: str) -> tuple[int, int] | None:
    """Return the least and the greatest size of a pool if a value is out of these bounds, else None.

    Args:
        static: The size of the broker's own file.
        value: The new size.
    """
    try:
        old, new = int(static), int(value)
    except ValueError:
        return None
    bounds = max(1, old // 2), 2 * old
    return None if bounds[0] <= new <= bounds[1] else bounds


def _times(check: _MergedCheck) -> None:
    if check.after.time(_RETENTION) == 0:
        check.refuse("log.retention.ms must be at least 1, or -1 for no limit", "log.retention.ms")
    roll, jitter = check.after.time(_ROLL), check.after.time(_JITTER)
    if roll is not None and roll < 1:
        check.refuse("log.roll.ms must be at least 1", "log.roll.ms")
    if jitter is not None and jitter < 0:
        check.refuse("log.roll.jitter.ms must be at least 0", "log.roll.jitter.ms")
    flush = check.after.integer(_FLUSH)
    if _FLUSH in check.changed and flush is not None and flush < 0:
        check.warnings.append(
            f"{_FLUSH}: brokers take a value below 0 and fail to apply it; they then neither describe nor alter a "
            "topic without a flush.ms of its own. Remove it to leave flushing to the operating system"
        )


def _cleaner(check: _MergedCheck) -> None:
    threads, buffer = check.after.integer(_CLEANER_THREADS), check.after.integer(_DEDUPE)
    if threads and buffer is not None and buffer // threads <= _DEDUPE_PER_THREAD:
        check.refuse(
            f"{_DEDUPE} must be more than {_DEDUPE_PER_THREAD} bytes for each of the {threads} {_CLEANER_THREADS}",
            *sorted((_DEDUPE, _CLEANER_THREADS), key=lambda name: name not in check.changed),
        )


def _local_retention(check: _MergedCheck) -> None:
    """Check that a broker keeps no more data on its disk than the topic keeps in total."""
    times = [name for name, _ in _RETENTION]
    totals = (
        ("log.local.retention.ms", times, check.after.time(_RETENTION)),
        ("log.local.retention.bytes", ["log.retention.bytes"], check.after.integer("log.retention.bytes")),
    )
    for name, total_names, total in totals:
        local = check.after.integer(name)
        if not check.changed & {name, *total_names} or local is None or local == _LIKE_TOTAL:
            continue
        if total is None or total < 0:
            continue
        total_name = total_names[0]
        if local == _UNLIMITED:
            check.refuse(f"{name} must not be -1 while {total_name} is limited", name, total_name)
        elif local > total:
            check.refuse(f"{name} must be at most {total_name}, which is {total}", name, total_name)


def _connections(check: _MergedCheck) -> None:
    text = check.after.text(_OVERRIDES) or ""
    overrides = [element.strip() for element in text.split(",") if element.strip()]
    for element in overrides:
        host, separator, count = element.rpartition(":")
        if not separator or not _HOST.fullmatch(host.strip()) or not re.fullmatch(r"[0-9]{1,9}", java_trim(count)):
            check.refuse(f"{_OVERRIDES} must be a list of host:count", _OVERRIDES)
            return
    if check.after.integer(_PER_IP) == 0 and not overrides:
        check.refuse(f"{_PER_IP} can be 0 only where {_OVERRIDES} lists who may connect", _PER_IP, _OVERRIDES)


def _listeners(check: _MergedCheck) -> None:
    if not check.changed & _reconfigured(check.catalog):
        return
    if not check.after.known(LISTENERS):
        if check.changed & set(_LISTENER_KEYS):
            check.warnings.append(
                "The listeners can't be checked against each other: the broker's own file is not known here"
            )
        return
    try:
        after = _listeners_of(check.after)
    except ListenersError as error:
        check.refuse(str(error), *error.keys)
        return
    try:
        before = _listeners_of(check.before)
    except ListenersError:
        return
    if not check.before.known(LISTENERS):
        return
    for listener in sorted(before.names & after.names):
        if before.protocols.get(listener) != after.protocols.get(listener):
            check.refuse(f"{PROTOCOL_MAP}: the protocol of the listener {listener} can't change", PROTOCOL_MAP)
        fixed = _fixed(check, listener)
        if fixed:
            check.refuse(
                f"{clipped(fixed[0])} is other than in the broker's own file: while it is, what all listeners share "
                f"can't change, as {listener} is there already; remove it, or set it in the file and restart it",
                fixed[0],
                *sorted(check.changed & _reconfigured(check.catalog)),
            )


def _fixed(check: _MergedCheck, listener: str) -> list[str]:
    """Return the file-only configs of a listener whose values differ from the broker's file.

    Brokers also compare previously set values with their file. If the file is not known, only changes count.
    """
    file = check.after.levels.static
    there = check.before.merged if file is None else file
    values = check.after.merged
    return sorted(
        name
        for name in there.keys() | values.keys()
        if _is_fixed(check.catalog, name, listener) and there.get(name) != values.get(name)
    )


def _listeners_of(view: _EffectiveValues) -> BrokerListeners:
    values = view.merged | {name: view.text(name) or "" for name in _LISTENER_KEYS}
    return read_listeners(values, file_known=view.levels.static is not None)


@cache
def _reconfigured(catalog: Catalog) -> frozenset[str]:
    """Return the keys whose change makes a broker reconfigure its listeners."""
    return frozenset(
        name
        for name, found in catalog.broker.items()
        if found.dynamic and (found.prefix is not None or name in {*_LISTENER_KEYS, _MECHANISM})
    )


def _is_fixed(catalog: Catalog, name: str, listener: str) -> bool:
    parts = listener_key(catalog, name)
    if parts is None or parts.listener != listener.lower():
        return False
    definition = catalog.broker.get(parts.base)
    return definition is None or not (definition.prefix_only or definition.cluster_level_prefix)


def _mechanisms(check: _MergedCheck) -> None:
    """Check that the mechanism between brokers is offered by their listener."""
    if not any(name == _MECHANISM or name.endswith(_MECHANISMS) for name in check.changed):
        return
    if check.after.levels.static is None:
        check.warnings.append(
            f"{_MECHANISM} must be one of {_MECHANISMS} where brokers use SASL among themselves; whether they do is in "
            "their own file, which is not known here"
        )
        return
    try:
        listeners = _listeners_of(check.after)
    except ListenersError:
        return
    name = listeners.inter_broker or ""
    if not listeners.protocols.get(name, "").startswith("SASL_"):
        return
    own = f"listener.name.{name.lower()}.{_MECHANISMS}"
    enabled = check.after.value(own)
    if not isinstance(enabled, list) or check.after.value(_MECHANISM) not in enabled:
        text = f"{_MECHANISM} must be one of the {_MECHANISMS} of the listener {name}"
        check.refuse(text, own, _MECHANISM, _MECHANISMS)
