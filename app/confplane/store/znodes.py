"""Every path, and every payload that Kafka reads or writes: written exactly as Kafka does, read as leniently.

Written entity: ``{"version":1,"config":{...}}``, UTF-8, no spaces, foreign members of the node after ``config``. Read
entity: as Kafka's ``AdminZkClient.fetchEntityConfig``, with one exception: if Kafka silently reads broken content as an
empty config, the node here gets a ``defect``, and no process may write to it. :func:`readable` distinguishes two kinds:
a node with bytes after its JSON is readable by Kafka and by Confplane; a node that is not JSON at all has no config to
show.

Source: core/src/main/scala/kafka/zk/ZkData.scala (ConfigEntityZNode, ConfigEntityChangeNotificationZNode),
core/src/main/scala/kafka/utils/Json.scala.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import orjson

from confplane.domain.changes import Node
from confplane.domain.entities import DEFAULT_NODE, Entity, EntityType
from confplane.domain.errors import InvalidRequestError, InvalidTopicError
from confplane.domain.facets import Tree
from confplane.domain.topics import check_topic_name
from confplane.services.ports.cluster_states import Freeze, Incarnation, Layout, Target, TargetMode
from confplane.services.ports.kafka import KraftEntityType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHANGES: Final = "/config/changes"
CHANGE_PREFIX: Final = "/config/changes/config_change_"
TOPIC_CONFIGS: Final = "/config/topics"
CHANGE_NAME: Final = re.compile(r"config_change_(\d{10})\Z", re.ASCII)
CONFIG_TYPES: Final = tuple(kind.plural for kind in EntityType)
KRAFT_TYPES: Final = frozenset({EntityType.GROUP, EntityType.CLIENT_METRICS})
"""Entity types of clusters on KRaft. The parents of their nodes are created with the first such node."""
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
REASSIGNED: Final = "/admin/reassign_partitions"
"""Reassignments that were not begun through a broker; it exists while they are in progress."""
CONFPLANE: Final = "/confplane"
COMMITS: Final = "/confplane/commits"
WRITERS: Final = "/confplane/writers"
FREEZE: Final = "/confplane/freeze"
LAYOUT: Final = "/confplane/layout"
LEADER: Final = "/confplane/leader"
TARGET: Final = "/confplane/target"
OBSERVATION: Final = "/confplane/observation"
APPLIED: Final = "/confplane/applied"
INCARNATION: Final = "/confplane/incarnation"
"""Not among the roots, which every session creates: its absence shows that another store answers."""
PERSISTENT_ROOTS: Final = (
    "/config",
    *(f"/config/{kind.plural}" for kind in EntityType if kind not in KRAFT_TYPES),
    CHANGES,
    CONFPLANE,
    COMMITS,
    WRITERS,
    FREEZE,
    LAYOUT,
    TARGET,
    OBSERVATION,
    APPLIED,
)
"""Nodes that must exist before the first transaction; brokers make the first seven themselves when they start."""

_NOTIFICATION_V1: Final = 1
_NOTIFICATION_V2: Final = 2
_BEYOND_BMP: Final = re.compile("[\U00010000-\U0010ffff]")
_ESCAPED_CONTROL: Final = re.compile(r"(\\\\)|\\u00([01][0-9a-f])")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_IN_NO_PATH: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
_UNESCAPED: Final = re.compile(r"[ !#-\[\]-~]*\Z")
"""Characters that are unescaped in a JSON string; most configs contain no other characters."""
_LAST_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the last time that can be shown."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SHARED_LENGTH: Final = 24
"""The greatest length of values shared between nodes: numbers and enumerations repeat, longer texts rarely do."""
_SHARED: Final = 10_000
"""The greatest number of cached texts that are shared."""


# ---------------------------------------------------------------- JSON


def _quoted(text: str) -> str:
    r"""Return a JSON string as Jackson writes it: ``\u001F`` in upper case, two escapes beyond the BMP, else raw."""
    written = json.dumps(text, ensure_ascii=False)
    if "\\u00" in written:
        written = _escaped_controls(written)
    return _BEYOND_BMP.sub(_surrogates, written)


def _escaped_controls(written: str) -> str:
    # A backslash of the text itself is written doubled, so only an odd run of backslashes starts an escape.
    return _ESCAPED_CONTROL.sub(lambda match: match[0] if match[1] else f"\\u00{match[2].upper()}", written)


def _surrogates(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex().upper()
    return f"\\u{units[:4]}\\u{units[4:]}"


def _first_json(text: str, decoder: json.JSONDecoder) -> tuple[Any, int]:
    """Decode the first JSON value.

    Raises:
        ValueError: There is no JSON value.
    """
    start = _SPACE.match(text).end()  # type: ignore[union-attr]  # the pattern matches the empty string
    try:
        return decoder.raw_decode(text, start)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant, parse_int=float)
"""The decoder for entities: the value of a number does not matter, and floats have no limit of digits."""
_EXACT_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _foreign_members(text: str) -> bytes:
    """Return the members of a valid JSON object besides ``version`` and ``config``. The values' texts are unchanged."""
    members: dict[str, str] = {}
    at = _skip(text, 0) + 1
    while text[at := _skip(text, at)] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        members[name] = text[at:end]
        at = end
    return (
        "{" + ",".join(f"{_quoted(n)}:{raw}" for n, raw in members.items() if n not in {"version", "config"}) + "}"
    ).encode()


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # the pattern matches the empty string


# ---------------------------------------------------------------- entities


class Content(NamedTuple):
    """An entity node's decoded data: the last fields of a :class:`~confplane.domain.changes.Node`."""

    items: tuple[str, ...]
    defect: str | None = None
    extra: bytes | None = None


EMPTY: Final = Content(())


def encode_entity(config: Mapping[str, str], extra: bytes | None = None) -> bytes:
    """Return an entity node's data as Kafka writes it; ``extra`` is a JSON object of foreign members to keep.

    Raises:
        UnicodeEncodeError: A key or value holds a lone surrogate.
    """
    if _UNESCAPED.match("".join([*config, *config.values()])):
        pairs = ",".join([f'"{key}":"{value}"' for key, value in config.items()])
    else:
        pairs = ",".join([f"{_quoted(key)}:{_quoted(value)}" for key, value in config.items()])
    members = b"," + extra[1:-1] if extra else b""
    return b'{"version":1,"config":{' + pairs.encode() + b"}" + members + b"}"


def decode_entity(data: bytes | None) -> Content:
    """Read an entity node's data; never raises. Unreadable data have a ``defect`` and no items."""
    if not data:
        return EMPTY
    try:
        return _content(data, orjson.loads(data))
    except ValueError:
        pass
    # As leniently as Kafka: bytes after the JSON and lone surrogates are accepted.
    try:
        text = data.decode()
        value, end = _first_json(text, _DECODER)
    except ValueError:
        return Content((), "does not hold JSON")
    content = _content(data, value, trailing=_skip(text, end) != len(text))
    if content.defect is None:
        try:
            "".join(content.items).encode()
        except UnicodeEncodeError:
            return Content((), "holds a lone surrogate")
    return content


def _content(data: bytes, value: Any, *, trailing: bool = False) -> Content:
    if not isinstance(value, dict):
        return Content((), "holds JSON that is not an object")
    config = value.get("config")
    if not isinstance(config, dict):
        return Content((), "has no object under 'config'")
    try:
        items = items_of(config)
    except TypeError:
        key = next(key for key, stored in config.items() if not isinstance(stored, str))
        return Content((), f"holds a value under {key!r} that is not a JSON string")
    if trailing:
        return Content(items, "holds more bytes behind its JSON")
    extra = None
    if len(value) > ("version" in value) + 1:
        try:
            extra = _foreign_members(data.decode())
        except (ValueError, RecursionError):
            return Content(items, "holds members beside 'config' that can't be kept")
    return Content(items, None, extra)


_shared: Final[dict[str, str]] = {}


def items_of(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return a config in a node's form, (key, value, key, value, ...), with texts shared by recently read nodes.

    A text that occurs once is soon evicted from the cache. A repeated text is one object for many nodes.

    Raises:
        TypeError: A value is not a string.
    """
    if len(_shared) > _SHARED:
        _shared.clear()
    share = _shared.setdefault
    items: list[str] = []
    for key, value in config.items():
        if not isinstance(value, str):
            raise TypeError(key)
        items += share(key, key), share(value, value) if len(value) <= _SHARED_LENGTH else value
    return tuple(items)


def node_of(entity_id: str, data: bytes | None, stat: Sequence[int]) -> Node:
    """Return an entity's node as read: its data, and the fields of its Stat."""
    content = decode_entity(data)
    # Stat: czxid, mzxid, ctime, mtime, version.
    return Node(entity_id, content.items, stat[4], stat[0], stat[1], stat[3], content.defect, content.extra)


def readable(node: Node) -> bool:
    """Return True if the node's config can be shown, that is, if Kafka can read it.

    The node may have bytes after its JSON, which a write loses.

    A node with a ``defect`` may never be written, whether readable or not.
    """
    return node.defect is None or bool(node.items)


def entity_id(path: str) -> str | None:
    """Return the entity id of a path below a tree's root, or None if the path is not one of an entity as Kafka spells
    it: another spelling of the same name is reached by no request of Kafka's.
    """  # noqa: D205 - one thought
    parts = path.split("/")
    # Plain names of the two most frequent kinds are not parsed further.
    if len(parts) == 4 and parts[0] == "users" and parts[2] == "clients":  # noqa: PLR2004 - users/<u>/clients/<c>
        if (user := _id_name(parts[1])) is not None and (client := _id_name(parts[3])) is not None:
            return f"user{user},client-id{client}"
    elif len(parts) == 2 and parts[0] in _PLAIN_KINDS and (name := _id_name(parts[1])) is not None:  # noqa: PLR2004 - <type>/<name>
        return f"{_PLAIN_KINDS[parts[0]]}{name}"
    try:
        entity = Entity.from_path(path)
        known = Entity.from_id(entity.id) == entity and entity.path == path
    except (ValueError, InvalidRequestError):
        return None
    return entity.id if known else None


_PLAIN_KINDS: Final = {
    kind.plural: kind.value for kind in (EntityType.USER, EntityType.CLIENT_ID, EntityType.IP, *KRAFT_TYPES)
}


@lru_cache(4096)
def _id_name(element: str) -> str | None:
    if element == DEFAULT_NODE:
        return ""
    return f"={element}" if _PLAIN.match(element) else None


def path_of(tree: Tree, entity: Entity) -> str:
    """Return the full path of an entity's znode below the chroot."""
    return f"{tree.value}/{entity.path}"


def parents_of(tree: Tree, entity: Entity) -> list[str]:
    """Return the ancestors of an entity's znode that a transaction may have to create, outermost first.

    The roots below ``/config`` are created when a session starts; everything below the other tree's root may be
    missing.
    """
    path = path_of(tree, entity)
    elements = path.split("/")
    paths = ["/".join(elements[: depth + 1]) for depth in range(1, len(elements) - 1)]
    return [parent for parent in paths if parent not in _ROOTS]


_ROOTS: Final = frozenset(PERSISTENT_ROOTS)


def is_path(path: str) -> bool:
    """Return True if a znode can have this path.

    Only such a path may be sent: kazoo can't encode a lone surrogate, and for some other paths ZooKeeper returns an
    error instead of reporting an absent znode.

    Source: org.apache.zookeeper.common.PathUtils.validatePath, which treats the two halves of a character beyond the
    BMP as surrogates.
    """
    if path.isascii() and path.isprintable():
        if "//" not in path and "/." not in path and path[0:1] == "/" != path[-1:]:
            return True  # the fast path for nearly all paths
    elif _IN_NO_PATH.search(path):
        return False
    return path.startswith("/") and _NO_ELEMENTS.isdisjoint(path[1:].split("/"))


_NO_ELEMENTS: Final = frozenset({"", ".", ".."})


# ---------------------------------------------------------------- notifications


def encode_notification(entity_path: str) -> bytes:
    """Return a notification's data in the form that Kafka writes since 0.9 (version 2)."""
    return f'{{"version":2,"entity_path":{_quoted(entity_path)}}}'.encode()


def decode_notification(data: bytes | None) -> str | None:
    """Return the path below ``/config`` that a notification names, or None if it names no entity.

    Accepts Kafka's formats 2 and 1, and the bare name of a topic from before the versions (KIP-21). Current brokers
    ignore such a bare name, although its writer did change the topic. The name may still not be in Kafka's spelling.
    """
    path = _notified_path(data)
    if path is None:
        return None
    parts = path.split("/")
    of_entity = len(parts) == 2 or (len(parts) == 4 and parts[0] == "users" and parts[2] == "clients")  # noqa: PLR2004 - <type>/<name>, users/<u>/clients/<c>
    return path if of_entity and parts[0] in CONFIG_TYPES and is_path(f"/{path}") else None


def _notified_path(data: bytes | None) -> str | None:
    try:
        value, _ = _first_json((data or b"").decode(), _EXACT_DECODER)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return _topic_path(value) if isinstance(value, str) else None
    version = value.get("version")
    if type(version) is not int:
        return None
    if version == _NOTIFICATION_V1 and value.get("entity_type") in ("topics", "clients"):
        name = value.get("entity_name")
        return f"{value['entity_type']}/{name}" if isinstance(name, str) else None
    path = value.get("entity_path")
    return path if version == _NOTIFICATION_V2 and isinstance(path, str) else None


def _topic_path(name: str) -> str | None:
    try:
        check_topic_name(name)
    except InvalidTopicError:
        return None
    return f"{EntityType.TOPIC.plural}/{name}"


def sequence_of(name: str) -> int | None:
    """Return the number of a child of ``/config/changes``, or None for a child that is not a notification."""
    match = CHANGE_NAME.match(name)
    return int(match[1]) if match else None


def change_path(sequence: int) -> str:
    """Return the path of a notification."""
    return f"{CHANGE_PREFIX}{sequence:010d}"


def change_name(sequence: int) -> str:
    """Return the name of a notification."""
    return change_path(sequence).removeprefix(f"{CHANGES}/")


def next_sequence(cversion: int, children: int) -> int:
    """Return the number that the next sequential child will get, according to its parent's Stat.

    ZooKeeper numbers by the count of creations below the parent. It shows clients ``2 * creations - children`` as
    ``cversion`` (DataNode.copyStat), wrapped to 32 bits; deletions and failed transactions do not change the count.
    """
    return ((cversion + children) & 0xFFFF_FFFF) >> 1


# ---------------------------------------------------------------- Confplane's own nodes


def topic_path(topic: str) -> str:
    """Return the path of a topic's metadata, which brokers keep."""
    return f"{BROKER_TOPICS}/{topic}"


KEYED: Final = ".k"
"""The end of the names of writers of the releases that keep states by key (:attr:`Target.states_by_key`)."""


def writer_path(writer: str) -> str:
    """Return the path of a session's ephemeral node."""
    return f"{WRITERS}/{writer}"


def marker_path(change_id: UUID) -> str:
    """Return the path of a change's marker."""
    return f"{COMMITS}/{change_id}"


def encode_state(state: Freeze | Layout | Target | Incarnation | None) -> bytes:
    """Return the data of one of this service's own nodes; None empties it."""
    match state:
        case None:
            return b""
        case Layout():
            return encode_layout(state)
        case Target():
            return encode_target(state)
        case Incarnation():
            return encode_incarnation(state)
    return encode_freeze(state)


def encode_freeze(freeze: Freeze) -> bytes:
    """Return the freeze node's data; it is empty while the cluster is not frozen."""
    return orjson.dumps(
        {"version": 1, "reason": freeze.reason, "principal": freeze.principal, "since": freeze.since_ms}
    )


def decode_freeze(data: bytes | None, mtime_ms: int) -> Freeze | None:
    """Read the freeze node's data; unreadable data count as a freeze."""
    if not data:
        return None
    unreadable = Freeze(f"the znode {FREEZE} holds data that can't be read", None, mtime_ms)
    try:
        value = orjson.loads(data)
    except ValueError:
        return unreadable
    match value:
        case {"version": 1, "reason": str(reason), "principal": str(principal), "since": since} if (
            type(since) is int and 0 <= since <= _LAST_TIME_MS
        ):
            return Freeze(reason, principal, since)
    return unreadable


def encode_layout(layout: Layout) -> bytes:
    """Return the layout node's data."""
    moved = {} if layout.source is None else {"from": layout.source.layout}
    return orjson.dumps({"version": 1, "layout": layout.tree.layout, **moved})


def decode_layout(data: bytes | None) -> Layout | None:
    """Read the layout node's data. Returns None if no layout is stored.

    Raises:
        ValueError: The data can't be read.
    """
    if not data:
        return None
    value = orjson.loads(data)
    match value:
        case {"version": 1, "layout": str(layout), **more} if layout in _LAYOUTS:
            tree, source = _LAYOUTS[layout], more.get("from")
            if source is None or source == tree.other.layout:
                return Layout(tree, None if source is None else tree.other)
    raise ValueError("it is not of a form that this version knows")


_LAYOUTS: Final = {tree.layout: tree for tree in Tree}


_BY_KEY: Final = 3
"""The version of a target whose states of deliveries are kept by key."""


def encode_target(target: Target) -> bytes:
    """Return the target node's data."""
    known = {
        "version": _BY_KEY if target.states_by_key else 2 if target.modes else 1,
        "kind": "kraft",
        "mode": target.mode,
        "cluster_id": target.cluster_id,
        "imported": target.imported,
        "paused": target.paused,
    }
    # A release that knows only one mode for all entity types can't read version 2, and one that does not know the
    # tables of states can't read version 3. So they write no config of the cluster.
    modes = {entity_type.value: mode for entity_type, mode in target.modes.items()}
    return orjson.dumps(known | {"modes": modes} if modes else known)


def decode_target(data: bytes | None) -> Target | None:
    """Read the target node's data. Returns None if the brokers read ZooKeeper themselves.

    Raises:
        ValueError: The data can't be read.
    """
    if not data:
        return None
    match orjson.loads(data):
        case {
            "version": 1 | 2 | 3 as version,
            "kind": "kraft",
            "mode": str(mode),
            "cluster_id": str(cluster_id),
            "imported": bool(imported),
            "paused": bool(paused),
            **more,
        } if mode in set(TargetMode):
            modes = more.get("modes", {})
            if isinstance(modes, dict):
                by_entity_type = {KraftEntityType(entity_type): TargetMode(each) for entity_type, each in modes.items()}
                return Target(cluster_id, TargetMode(mode), imported, paused, by_entity_type, version == _BY_KEY)
    raise ValueError("it is not of a form that this version knows")


def encode_incarnation(incarnation: Incarnation) -> bytes:
    """Return the incarnation node's data."""
    newest = None if incarnation.newest_change is None else str(incarnation.newest_change)
    postgres = {"change": newest, "timeline": incarnation.timeline}
    return orjson.dumps({"version": 1, "number": incarnation.number, "id": incarnation.id, "postgres": postgres})


def decode_incarnation(data: bytes | None) -> Incarnation | None:
    """Read the incarnation node's data. Returns None if they are empty.

    Raises:
        ValueError: The data can't be read.
    """
    if not data:
        return None
    match orjson.loads(data):
        case {"number": int(number), "id": str(id_), "postgres": {"change": str() | None as change, **more}}:
            timeline = more.get("timeline")
            newest = None if change is None else UUID(change)
            return Incarnation(number, id_, newest, timeline if isinstance(timeline, int) else None)
    raise ValueError("it is not of a form that this version knows")


def kraft_controller(data: bytes | None) -> bool:
    """Return True if ``/controller`` belongs to a KRaft controller, or can't be read, which permits no write.

    Source: KIP-866; ControllerZNode.decode in ZkData.scala.
    """
    try:
        value = orjson.loads(data or b"")
    except ValueError:
        return True
    epoch = value.get("kraftControllerEpoch", -1) if isinstance(value, dict) else 1
    return type(epoch) is not int or epoch > 0
