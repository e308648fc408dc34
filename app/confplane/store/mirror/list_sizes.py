"""Bytes of the lists of a tree's znodes, each of which a broker's Java client reads as one answer.

A broker lists all entities of a kind when it starts. ZooKeeper has no pages, and Java's client gives up the connection
over an answer of ``jute.maxbuffer`` bytes. So the bytes are summed up with every creation and deletion: an addition for
each.

Names count in their stored form: those of users, clients and ips percent-encoded.

Source: org.apache.zookeeper.proto.GetChildren2Response, ReplyHeader; ClientCnxnSocket.readLength.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.entities import DEFAULT_NODE, EntityType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ANSWER: Final = 16 + 4 + 68
"""Bytes of the reply's header, the number of names, and the parent's Stat."""
_NAME: Final = 4
"""Bytes of the length before each name."""
_DEFAULT: Final = len(DEFAULT_NODE)
_PLURALS: Final = {kind.value: kind.plural for kind in EntityType}
_KINDS: Final = {plural: kind for kind, plural in _PLURALS.items()}
ALL_PAIRS: Final = "users/*/clients"
"""The key for the lists of all users' clients."""


class ListSizes:
    """The sizes of one tree's lists: one for each kind of entity, and one of clients for each user with clients."""

    def __init__(self) -> None:
        self._kinds = dict.fromkeys(_PLURALS, _ANSWER)
        self._users: dict[str, int] = {}
        self._fullest: str | None = None
        """The user with the longest list; None where it has to be found again."""

    # -- creations and deletions

    def add(self, user: str | None, kind: str, name: str) -> None:
        """Count a new entity at its position; see :func:`list_position`."""
        size = _NAME + (len(name) or _DEFAULT)
        if user is None:
            self._kinds[kind] += size
            return
        users = self._users
        after = users[user] = users.get(user, _ANSWER) + size
        if self._fullest is not None and after > users[self._fullest]:
            self._fullest = user

    def drop(self, user: str | None, kind: str, name: str) -> None:
        """Discount a deleted entity at its former position."""
        self._change(user, kind, _NAME + (len(name) or _DEFAULT), -1)

    def count_unmapped(self, path: str, *, present: bool) -> None:
        """Count a znode that the mirror has no entity for, because of its name or because it may not be read."""
        kind, name, *rest = path.split("/")
        if kind not in _KINDS:
            return
        user, name = (_user_of(name), rest[-1]) if rest else (None, name)
        self._change(user, _KINDS[kind], _NAME + len(name.encode()), 1 if present else -1)

    def _change(self, user: str | None, kind: str, size: int, sign: int) -> None:
        if user is None:
            self._kinds[kind] += sign * size
            return
        after = self._users.get(user, _ANSWER) + sign * size
        if after > _ANSWER:
            self._users[user] = after
        else:
            self._users.pop(user, None)
        if sign < 0:
            if user == self._fullest:
                self._fullest = None
        elif self._fullest is not None and after > self._users[self._fullest]:
            self._fullest = user

    # -- sizes

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Return the path of each kind's parent below the tree's root, and the bytes of its list."""
        for kind, size in self._kinds.items():
            yield _PLURALS[kind], size

    def users(self) -> list[object]:
        """List the ids of the users with clients."""
        return list(self._users)

    def longest_of_users(self) -> tuple[str, int] | None:
        """Return the path of the parent with the longest list of a user's clients, and its bytes; None without any.

        A search of all users where the longest list became shorter since the last call.
        """
        if not self._users:
            return None
        if self._fullest is None:
            self._fullest = max(self._users, key=self._users.__getitem__)
        return _path_of(self._fullest), self._users[self._fullest]

    def with_more(self, entity_ids: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Return the parents of entities that do not exist yet, and the bytes of their lists after their creation."""
        more: dict[tuple[str | None, str], int] = {}
        for entity_id in entity_ids:
            user, kind, name = list_position(entity_id)
            more[user, kind] = more.get((user, kind), 0) + _NAME + (len(name) or _DEFAULT)
        for (user, kind), size in more.items():
            if user is None:
                yield _PLURALS[kind], self._kinds[kind] + size
            else:
                yield _path_of(user), self._users.get(user, _ANSWER) + size


def list_position(entity_id: str) -> tuple[str | None, str, str]:
    """Return an entity's position: the user of its list (None: the list of its kind), its kind, and its name.

    The name is as in ids, ``""`` for the default. Its length is that in a path: an escape ~HH in an id is %HH in the
    path, and the rest is ASCII.
    """
    user, comma, last = entity_id.partition(",")
    if not comma:
        kind, _, name = entity_id.partition("=")
        return None, kind, name
    kind, _, name = last.partition("=")
    return user, kind, name


def _user_of(element: str) -> str:
    user = EntityType.USER.value
    return user if element == DEFAULT_NODE else f"{user}={element.replace('%', '~')}"


def _path_of(user: str) -> str:
    _, equals, name = user.partition("=")
    return f"users/{name.replace('~', '%') if equals else DEFAULT_NODE}/clients"
