"""The settings of one client as updates arrive: pure except for the log and the file of last known good values."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confplane.client.dynamic.rules import SUPPORTED, Decision, decide
from confplane.client.dynamic.source import DynamicValues, SourceUnavailable, SourceUnsupported, UnchangedValues
from confplane.files import atomic_write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confplane.client.dynamic.names import Library
    from confplane.client.dynamic.source import Update
    from confplane.domain.definitions import ConfigKind


@dataclass(frozen=True, slots=True)
class LastKnownGoodFile:
    """A file with the values of one client. Another client, cluster or service does not read them.

    Args:
        path: The file; its directory exists.
        bound_to: URL, cluster, and entity id.
    """

    path: Path
    bound_to: tuple[str, str, str]

    def load(self) -> dict[str, str] | None:
        """Return the values, or None if the file does not exist or belongs to another client."""
        try:
            content = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        match content:
            case {"boundTo": list(bound_to), "configs": dict(configs)} if tuple(bound_to) == self.bound_to:
                texts = {key: value for key, value in configs.items() if isinstance(value, str)}
                return texts if len(texts) == len(configs) else None
            case _:
                return None

    def save(self, configs: Mapping[str, str]) -> None:
        """Replace the file in one step, readable by its owner alone.

        Raises:
            OSError: The file can't be written. The previous file is unchanged.
        """
        with atomic_write(self.path, mode=0o600) as file:
            json.dump({"boundTo": self.bound_to, "configs": dict(configs)}, file, indent=2)


_log: Final = logging.getLogger(__name__)


class ConfigFollower:
    """Turns updates into settings. Each decision is logged once, and so is each outage.

    Args:
        kind: Producer or consumer.
        own: The user's own settings, as the library takes them.
        library: The library.
        label: The client's name in the log.
        file: The file of last known good values; None for none.
    """

    def __init__(
        self, kind: ConfigKind, own: Mapping[str, Any], library: Library, *, label: str, file: LastKnownGoodFile | None
    ) -> None:
        self._kind = kind
        self._own = dict(own)
        self._in_java = library.in_java(own)
        self._library = library
        self._label = label
        self._file = file
        self._begun = False
        self._away = False
        self._values: Mapping[str, str] | None = None
        self._stored: Mapping[str, str] | None = None
        self._keeps = True
        self.decision = Decision({})
        """The latest decision."""
        self.settings: Mapping[str, Any] = library.merged(own, {})
        """The settings for the library. Replaced as a whole, never changed."""
        self.revision = 0
        """The revision of the last answer; 0 before the first."""

    def take(self, update: Update) -> None:
        """Take an update. If the first one has no values, the last known good values are used instead."""
        begins, self._begun = not self._begun, True
        match update:
            case DynamicValues(configs, revision):
                self._back(revision)
                self._values = dict(configs)
                self._decide(configs, "")
            case UnchangedValues(revision):
                self._back(revision)
            case SourceUnavailable(reason):
                if not self._away:
                    _log.warning("%s: dynamic configs can't be read, those in force stay: %s", self._label, reason)
                self._away = True
                if begins:
                    self._take_last_known_good()
            case SourceUnsupported(reason):
                _log.warning("%s: the service has no dynamic configs, they are off: %s", self._label, reason)

    @property
    def unsaved(self) -> bool:
        """True if :meth:`save` has to be called, in a thread that may block on a disk."""
        return self._file is not None and self._values != self._stored

    def save(self) -> None:
        """Save the values as the last known good ones. After a failure, which is logged once, they remain unsaved."""
        values = self._values
        if self._file is None or values is None:
            return
        try:
            self._file.save(values)
        except OSError as error:
            if self._keeps:
                _log.warning("%s: the last known good values can't be kept: %s", self._label, error)
            self._keeps = False
        else:
            self._stored, self._keeps = values, True

    def differing(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
        """Return the configs that a client of this kind follows and that differ between two settings of the library."""
        before, after = self._library.in_java(one), self._library.in_java(other)
        return [key for key in SUPPORTED[self._kind] if before.get(key) != after.get(key)]

    def _take_last_known_good(self) -> None:
        configs = None if self._file is None else self._file.load()
        if configs is None:
            _log.warning("%s: starts with its own settings until dynamic configs can be read", self._label)
        else:
            self._decide(configs, " from the last known good values")

    def _decide(self, configs: Mapping[str, str], origin: str) -> None:
        decision = decide(self._kind, self._in_java, configs, self._library)
        if decision == self.decision:
            return
        before, self.decision = self.decision, decision
        self.settings = self._library.merged(self._own, decision.accepted)
        for key, value in decision.accepted.items():
            if before.accepted.get(key) != value:
                _log.info("%s: accepted the dynamic config %s=%s%s", self._label, key, value, origin)
        for key in before.accepted.keys() - decision.accepted.keys():
            _log.info("%s: the dynamic config %s is gone, its own setting is back", self._label, key)
        for dropped in decision.dropped:
            if dropped not in before.dropped:
                _log.warning(
                    "%s: dropped the dynamic config %s=%s%s: %s",
                    *(self._label, dropped.key, dropped.value, origin, dropped.reason),
                )

    def _back(self, revision: int | None) -> None:
        if self._away:
            _log.info("%s: dynamic configs can be read again", self._label)
        self._away = False
        if revision is not None:
            self.revision = revision
