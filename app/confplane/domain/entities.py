"""Kafka's config entities, their names, and their three spellings.

One entity has three spellings, each unique:

* the **entity id** in URLs: ``user=alice,client-id=billing`` (a type alone is the default entity);
* the **path** below ``/config`` in ZooKeeper and in notifications: ``users/alice/clients/billing``;
* the **components** of the RPCs: ``[("user", "alice"), ("client-id", "billing")]`` (``None`` is the default entity).

Names are percent-encoded in paths as Kafka's ``Sanitizer`` does, except those of topics and brokers. In ids the same
bytes are escaped with ``~`` in place of ``%``, so that an id survives raw substitution into a URL. The real name
``<default>`` is ``%3Cdefault%3E`` in a path and can't be mistaken for the default entity.

Source: clients/src/main/java/org/apache/kafka/common/utils/Sanitizer.java, KIP-546.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, unquote_to_bytes

from confplane.domain.enums import StrEnum
from confplane.domain.errors import InvalidEntityIdError, InvalidRequestError
from confplane.domain.texts import LONGEST_INDEXED, clipped, shown, step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DEFAULT_NODE: Final = "<default>"
"""The path element of a default entity: nine literal characters, angle brackets included."""


class EntityType(StrEnum):
    """Entity types under their RPC names."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    """A subscription to the metrics of clients (KIP-714)."""

    @property
    def plural(self) -> str:
        """The path element of this type below ``/config``."""
        return _PLURALS[self]


EntityTypeName = Literal["user", "client-id", "ip", "topic", "broker", "group", "client-metrics"]
"""The names of :class:`EntityType`, for schemas and options."""
EntityKindName = Literal["user", "client-id", "user,client-id", "ip", "topic", "broker", "group", "client-metrics"]
"""The types of an entity's components, in the spelling of entity ids."""

_TYPES: Final = tuple(EntityType)
_PLURALS: Final = {
    EntityType.USER: "users",
    EntityType.CLIENT_ID: "clients",
    EntityType.IP: "ips",
    EntityType.TOPIC: "topics",
    EntityType.BROKER: "brokers",
    EntityType.GROUP: "groups",
    EntityType.CLIENT_METRICS: "client-metrics",
}
_TYPE_NAMES: Final = frozenset(kind.value for kind in EntityType)
_BY_PLURAL: Final = {plural: kind for kind, plural in _PLURALS.items()}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]*")
_ID_NAME: Final = re.compile(r"(?:[A-Za-z0-9._-]|~[0-9A-F]{2})+")
_ESCAPE: Final = re.compile(r"~[0-9A-Fa-f]{2}")
_ESCAPED_LOOSELY: Final = re.compile(r"(?:[A-Za-z0-9._-]|~[0-9A-Fa-f]{2})+")
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ALL_ENCODED: Final = re.compile(r"%3D|%2C")
_RAW_NAMES: Final = {
    "topic": (re.compile(r"[A-Za-z0-9._-]{1,249}"), "Use at most 249 letters of ASCII, digits, '.', '_' and '-'."),
    "broker": (re.compile(r"0|[1-9][0-9]{0,9}"), "Use the broker's id, such as 0."),
}
CACHED_LENGTH: Final = 512
"""Characters of the longest id whose parsed form is cached, so that a flood of long ids can't fill the memory."""


def sanitize(name: str) -> str:
    """Percent-encode a name as Kafka does: all except ``A-Z a-z 0-9 . _ -``, per UTF-8 byte, upper-case hex."""
    return name if _PLAIN_NAME.fullmatch(name) else quote(name, safe="").replace("~", "%7E")


def desanitize(element: str) -> str:
    """Decode a path element as Kafka does: form decoding, so a literal ``+`` is a space.

    Raises:
        ValueError: A ``%`` is not followed by two hex digits, or the bytes are not UTF-8.
    """
    if _BAD_PERCENT.search(element):
        raise ValueError(f"{element!r} holds a '%' that is not followed by two hex digits")
    return unquote_to_bytes(element.replace("+", " ")).decode()


def check_name(kind: str, name: str, *, pointer: str | None = None) -> None:
    """Refuse names that no znode can carry.

    Raises:
        InvalidRequestError: The name is empty, ``.`` or ``..``, holds NUL or a lone surrogate, or is not valid for a
            topic or broker.
    """
    if not name:
        raise InvalidRequestError(f"Empty {kind} not supported", pointer=pointer)
    if name in {".", ".."}:
        raise InvalidRequestError(f"The {kind} name {name!r} can't be stored in ZooKeeper", pointer=pointer)
    if "\0" in name:
        raise InvalidRequestError(f"The {kind} name holds a NUL character", pointer=pointer)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError(f"The {kind} name holds a lone surrogate", pointer=pointer) from None
    # Topics and brokers are not encoded in paths, so a slash in a name would address another node.
    if kind in _RAW_NAMES:
        legal, rule = _RAW_NAMES[kind]
        if not legal.fullmatch(name):
            raise InvalidRequestError(f"{shown(name)} is not a legal {kind} name. {rule}", pointer=pointer)


@dataclass(frozen=True)
class Entity:
    """A config entity: its components in Kafka's order (user before client-id); the name ``None`` is the default."""

    components: tuple[tuple[EntityType, str | None], ...]
    types: tuple[EntityType, ...] = field(init=False, repr=False, compare=False)
    """The entity types of the components, in order."""

    def __post_init__(self) -> None:
        # Set here, because each check of a key reads the types, and a cached_property acquires a lock.
        object.__setattr__(self, "types", tuple([kind for kind, _ in self.components]))

    @classmethod
    def of(cls, **names: str | None) -> Entity:
        """Build an entity from keyword names, e.g. ``Entity.of(user="alice", client_id=None)``."""
        return cls.from_names({kind.replace("_", "-"): name for kind, name in names.items()})

    @classmethod
    def from_names(cls, names: Mapping[str, str | None], *, pointer: str | None = None) -> Entity:
        """Build an entity from a map of type to name; ``pointer`` is that of the map; errors have that of a member.

        Raises:
            InvalidRequestError: As :meth:`from_components`.
        """
        at = {kind: None if pointer is None else pointer + step(kind) for kind in names}
        return cls._build([(kind, name, at[kind], at[kind]) for kind, name in names.items()], pointer)

    @classmethod
    def from_components(cls, components: Iterable[tuple[str, str | None]], *, pointer: str | None = None) -> Entity:
        """Build an entity from RPC components, with the checks and texts of Kafka's AlterClientQuotas.

        A repeated type keeps its last name, as in Kafka. The facet decides which combinations it accepts.

        Args:
            components: Types and names.
            pointer: JSON pointer of the list; errors have that of an ``entityType`` or ``entityName`` in the list.

        Raises:
            InvalidRequestError: No component, an unknown type, or a name that can't be stored.
        """
        return cls._build(
            (
                (kind, name, None, None)
                if pointer is None
                else (kind, name, f"{pointer}/{index}/entityType", f"{pointer}/{index}/entityName")
                for index, (kind, name) in enumerate(components)
            ),
            pointer,
        )

    @classmethod
    def _build(
        cls, components: Iterable[tuple[str, str | None, str | None, str | None]], pointer: str | None
    ) -> Entity:
        """Build an entity from types and names, each with the pointers of both."""
        given: dict[EntityType, str | None] = {}
        for kind, name, kind_pointer, name_pointer in components:
            try:
                entity_type = EntityType(kind)
            except ValueError:
                raise InvalidRequestError(
                    f"Unhandled client quota entity type: {clipped(kind)}", pointer=kind_pointer
                ) from None
            if name is not None:
                check_name(kind, name, pointer=name_pointer)
            given[entity_type] = name
        if not given:
            raise InvalidRequestError("Invalid empty client quota entity", pointer=pointer)
        return cls(tuple([(kind, given[kind]) for kind in _TYPES if kind in given]))

    @classmethod
    def from_path(cls, path: str) -> Entity:
        """Parse a path below ``/config``, as found in notifications and in the tree.

        Raises:
            ValueError: The path is not that of an entity, or an element can't be decoded.
        """
        parts = path.split("/")
        if "" in parts:
            raise ValueError(f"{path!r} has an empty element")
        if len(parts) == 4 and parts[0] == "users" and parts[2] == "clients":  # noqa: PLR2004 - users/<u>/clients/<c>
            return cls(((EntityType.USER, _name(parts[1])), (EntityType.CLIENT_ID, _name(parts[3]))))
        if len(parts) != 2 or parts[0] not in _BY_PLURAL:  # noqa: PLR2004 - <type>/<name>
            raise ValueError(f"{path!r} is not the path of a config entity")
        kind = _BY_PLURAL[parts[0]]
        raw = kind in {EntityType.TOPIC, EntityType.BROKER}
        if raw and parts[1] != DEFAULT_NODE:
            return cls(((kind, parts[1]),))
        return cls(((kind, _name(parts[1])),))

    @classmethod
    def from_id(cls, raw: str, *, pointer: str | None = None) -> Entity:
        """Parse an entity id as it appears in a raw, undecoded URL path.

        The separators ``=`` and ``,`` are all literal, or all ``%3D`` and ``%2C``; any other spelling is refused with
        the canonical one.

        Raises:
            InvalidEntityIdError: The text is not an entity id, or not in canonical form; ``canonical_id`` is set if one
                exists.
        """
        try:
            return _from_id(raw) if len(raw) <= CACHED_LENGTH else _from_id.__wrapped__(raw)
        except InvalidEntityIdError as error:
            error.pointer = pointer
            raise

    @cached_property
    def id(self) -> str:
        """The entity id: ``user=alice``, ``user=alice,client-id``, ``ip=10.0.0.1``."""
        return ",".join(
            [kind if name is None else f"{kind}={sanitize(name).replace('%', '~')}" for kind, name in self.components]
        )

    @cached_property
    def path(self) -> str:
        """The path below ``/config``: ``users/alice``, ``users/alice/clients/<default>``."""
        return "/".join(
            f"{kind.plural}/{DEFAULT_NODE if name is None else _element(kind, name)}" for kind, name in self.components
        )

    def check_new(self, *, pointer: str | None = None) -> None:
        """Refuse an entity whose id is too long for the indexes of Postgres.

        Kafka has no such limit. Principals of SASL and X.509 need far less, and brokers list all names of a type in one
        response of ``jute.maxbuffer`` bytes.

        Raises:
            InvalidRequestError: The id takes more than :data:`LONGEST_INDEXED` bytes.
        """
        # An id is ASCII.
        if (size := len(self.id)) > LONGEST_INDEXED:
            raise InvalidRequestError(
                f"The entity id takes {size} bytes, where a byte of a name other than A-Z a-z 0-9 . _ - counts as"
                f" three; it may take {LONGEST_INDEXED} at most. Use shorter names",
                pointer=pointer,
            )

    def get(self, kind: EntityType) -> str | None:
        """Return the name for a type; ``None`` for the default entity and for an absent type."""
        return dict(self.components).get(kind)

    def as_dict(self) -> dict[str, str | None]:
        """Return type -> name, the ``entity`` member of full views."""
        return {kind.value: name for kind, name in self.components}

    def __str__(self) -> str:
        return self.id


def split_id(entity_id: str) -> tuple[tuple[str, str | None], ...]:
    """Split an id that is known to be canonical into (type, name) pairs; an order of magnitude faster than parsing."""
    pairs = []
    for part in entity_id.split(","):
        kind, separator, name = part.partition("=")
        pairs.append((kind, (desanitize(name.replace("~", "%")) if "~" in name else name) if separator else None))
    return tuple(pairs)


def _element(kind: EntityType, name: str) -> str:
    return name if kind in {EntityType.TOPIC, EntityType.BROKER} else sanitize(name)


def _name(element: str) -> str | None:
    return None if element == DEFAULT_NODE else desanitize(element)


@lru_cache(maxsize=4096)
def _from_id(raw: str) -> Entity:
    text = raw
    if "%" in raw:
        text = _ALL_ENCODED.sub(lambda match: "=" if match[0] == "%3D" else ",", raw)
        if "%" in text:
            raise _bad_id(raw, "bytes of names are escaped as ~HH, not as %HH")
        if "=" in raw or "," in raw:
            raise _bad_id(raw, "separators are either all literal or all percent-encoded")
    components: list[tuple[EntityType, str | None]] = []
    for part in text.split(","):
        kind, separator, name = part.partition("=")
        if kind not in _TYPE_NAMES or (separator and not _ID_NAME.fullmatch(name)):
            raise _bad_id(raw, "not of the form type=name[,type=name]")
        try:
            decoded = desanitize(name.replace("~", "%")) if separator else None
            if decoded is not None:
                check_name(kind, decoded)
        except (ValueError, InvalidRequestError) as error:
            raise _bad_id(raw, str(error)) from None
        components.append((EntityType(kind), decoded))
    types = [kind for kind, _ in components]
    if len(types) > 1 and types != [EntityType.USER, EntityType.CLIENT_ID]:
        raise _bad_id(raw, "only user and client-id combine, in this order, each once")
    entity = Entity(tuple(components))
    if entity.id != text:
        raise _bad_id(raw, "an entity has one spelling", canonical=entity.id)
    return entity


def _bad_id(raw: str, reason: str, *, canonical: str | None = None) -> InvalidEntityIdError:
    return InvalidEntityIdError(f"{raw!r} is not an entity id: {reason}", canonical_id=canonical or _guess(raw))


def _guess(raw: str) -> str | None:
    """Return the canonical id for another spelling of it, if the entity is unambiguous."""
    # If separators are literal, every percent-encoded byte belongs to a name: `user=a%2Cb` is the user `a,b`.
    literal = "=" in raw or "," in raw
    try:
        parts = [part.partition("=") for part in (raw if literal else _unquote(raw)).split(",")]
        if literal:
            parts = [(_unquote(kind), separator, _unquote(name)) for kind, separator, name in parts]
        entity = Entity.from_components(
            (kind, _guess_name(name) if separator else None) for kind, separator, name in parts
        )
    except (ValueError, InvalidRequestError):
        return None
    if len(entity.components) != len(parts):
        return None
    if len(parts) > 1 and entity.types != (EntityType.USER, EntityType.CLIENT_ID):
        return None
    return entity.id


def _guess_name(name: str) -> str:
    """Treat a name as escaped if all of it looks escaped, with hex digits in either case, and as plain otherwise."""
    if _ESCAPED_LOOSELY.fullmatch(name):
        return desanitize(name.replace("~", "%"))
    if _ESCAPE.search(name):
        raise ValueError(f"{name!r} may be escaped or not")
    return name


def _unquote(text: str) -> str:
    return unquote_to_bytes(text).decode()
