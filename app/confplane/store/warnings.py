"""Warnings for operators about a cluster's znodes: strays, unreadable ones, unknown spellings; texts of refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confplane.domain.texts import clipped, first_of, shown
from confplane.services.operator_warnings import OperatorWarning
from confplane.store import znodes
from confplane.store.mirror.list_sizes import ALL_PAIRS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from confplane.store.mirror.follower import MirrorFollower
    from confplane.store.mirror.nodes import Mirror

_LONG: Final = 0.7
"""Operators are warned when a list exceeds this share of the longest possible list."""
_STUCK_MS: Final = 10_000
_NAMED: Final = 5
"""Number of names that a warning lists; the rest is only counted."""


def mirror_warnings(follower: MirrorFollower) -> Iterator[OperatorWarning]:
    """Return the warnings about the znodes that a mirror has read."""
    if follower.anomalies.strays:
        strays = f"{znodes.CHANGES} has children that are not notifications, which stops brokers from reading config"
        yield _counted(f"{strays} changes", follower.anomalies.strays)
    if follower.anomalies.nameless:
        nameless = f"Notifications below {znodes.CHANGES} do not name a config entity, so brokers skip them"
        yield _counted(
            f"{nameless}, and the changes of their writer are not effective on any broker yet",
            follower.anomalies.nameless,
        )
    if follower.trouble is not None and (follower.stale_ms or 0) > _STUCK_MS:
        yield OperatorWarning(
            f"The copy of the configs can't be brought up to date, though ZooKeeper is connected: {follower.trouble};"
            " the log has more"
        )
    mirror = follower.mirror
    if mirror is None:
        return
    for tree, copy in mirror.trees.items():
        for node in copy.defects(_NAMED):
            yield OperatorWarning(
                f"A znode below {tree.value} can't be read or written back",
                f"A znode below {tree.value}, of {node.id}, {node.defect}",
            )
        if copy.defective > _NAMED:
            yield OperatorWarning(
                f"{copy.defective - _NAMED} more znodes below {tree.value} can't be read or written back"
            )
    if mirror.forbidden:
        yield _counted("Znodes that may not be read with this identity are not shown", mirror.forbidden)
    if mirror.unaddressed:
        yield _counted("Znodes whose names are not spelled as Kafka spells them are not shown", mirror.unaddressed)


def list_size_warnings(mirror: Mirror, limit: int) -> Iterator[OperatorWarning]:
    """Return a warning for each list of names that is close to the limit of brokers.

    Args:
        mirror: The mirror.
        limit: The limit of a list in bytes.
    """
    for tree, copy in mirror.trees.items():
        longest = copy.list_sizes.longest_of_users()
        for path, size in (*copy.list_sizes.sizes(), *(() if longest is None else (longest,))):
            if size >= _LONG * limit:
                of_user = longest is not None and path == longest[0]
                text = (
                    f"take {size} of the {limit} bytes that brokers can list (their jute.maxbuffer). Above that, no"
                    " entity can be created there: remove what is not needed, or raise jute.maxbuffer of all brokers"
                    " and then the setting"
                )
                yield OperatorWarning(
                    f"The names below {tree.value}/{ALL_PAIRS if of_user else path} {text}",
                    f"The names below {shown(f'{tree.value}/{path}')} {text}",
                )


def full_list_text(cluster: str, path: str, size: int, *, limit: int) -> str:
    """Return the text of the refusal of an entity with which a list would be too long for brokers."""
    return (
        f"Cluster {cluster}: with this the names below {clipped(path)} would take {size} bytes, and brokers list them"
        f" in one answer of less than {limit} (their jute.maxbuffer). Remove what is not needed (`confplane compact"
        f" --cluster {cluster}` finds empty entities); or raise jute.maxbuffer of all brokers and tools, and then the"
        " cluster's setting jute_maxbuffer"
    )


def restored_text(cluster: str, reason: str) -> str:
    """Return the text about a ZooKeeper that is taken for a restored one."""
    return (
        f"Cluster {cluster}: ZooKeeper was restored to an earlier state, or another one answers: {reason}. Reads go on"
        " and show its state; nothing is written or recorded. See docs/backup.md: `confplane"
        f" adopt-store --cluster {cluster} --reason TEXT` accepts the state as it is"
    )


def _counted(what: str, names: Collection[str]) -> OperatorWarning:
    """Return a warning with the number of names, and the first names in its detailed form."""
    return OperatorWarning(f"{what}: {len(names)} of them", f"{what}: {abbreviate(names)}")


def abbreviate(names: Iterable[str]) -> str:
    """Return the first few names, quoted, and the number of the rest."""
    return first_of(map(repr, names), _NAMED)
