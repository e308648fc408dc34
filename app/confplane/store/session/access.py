"""This service's identity in ZooKeeper: its credentials, its TLS, and whom the ACLs of its nodes name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kazoo.protocol.serialization import int_struct, write_string
from kazoo.security import ACL, AUTH_IDS, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from confplane.settings import UnusableSettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.settings import SecureAclSettings
    from confplane.store.session.tls import ZooKeeperTls


@dataclass(frozen=True, slots=True)
class NodeAcls:
    """The ACLs of new nodes, as they are in a request (:func:`confplane.store.session.session.acl_of`)."""

    sensitive: bytes
    """The ACL of nodes that not everyone may read."""
    others: bytes
    """The ACL of all other nodes, which is the larger one."""


def _node_acls(identity: str | None) -> NodeAcls:
    if identity is None:
        return NodeAcls(_encoded(OPEN_ACL_UNSAFE), _encoded(OPEN_ACL_UNSAFE))
    scheme, _, name = identity.partition(":")
    sensitive = [ACL(Permissions.ALL, Id(scheme, name)), ACL(Permissions.ALL, AUTH_IDS)]
    return NodeAcls(_encoded(sensitive), _encoded([*sensitive, *READ_ACL_UNSAFE]))


def _encoded(acl: list[ACL]) -> bytes:
    # A count; for each entry its rights and two strings with their lengths.
    parts = [int_struct.pack(len(acl))]
    for each in acl:
        parts += int_struct.pack(each.perms), write_string(each.id.scheme), write_string(each.id.id)
    return b"".join(parts)


class ZooKeeperAccess:
    """The session's credentials and TLS, and the ACLs of new nodes.

    Args:
        identity: The brokers' ZooKeeper identity, ``scheme:id``; None for the open ACL.
        credentials: ``user:password`` of ZooKeeper's digest scheme; None for a session without.
        tls: The TLS of connections; None for plain ones.
    """

    def __init__(
        self, identity: str | None = None, credentials: str | None = None, tls: ZooKeeperTls | None = None
    ) -> None:
        self.tls = tls
        self.auth = [] if credentials is None else [("digest", credentials)]
        """The credentials for kazoo, which sends them after every connect."""
        self.acls = _node_acls(identity)

    @classmethod
    def from_settings(
        cls, setting: str, acl: SecureAclSettings | str, tls: ZooKeeperTls | None = None
    ) -> ZooKeeperAccess:
        """Build the access from ``zookeeper_acl``, and read the file that it names.

        Raises:
            UnusableSettingsError: The file can't be read, or its content is not valid; the message names ``setting``.
        """
        if isinstance(acl, str):
            return cls(tls=tls)
        return cls(acl.identity, _credentials(acl.credentials_file, f"{setting}.credentials_file"), tls)


def _credentials(path: Path, setting: str) -> str:
    problem = "does not hold one line of the form user:password"
    try:
        user, _, password = (text := path.read_text("utf-8").strip()).partition(":")
    except OSError as error:
        problem = f"can't be read: {error.strerror}"
    except UnicodeDecodeError:
        # Raised below, outside the handler, where no exception with the file's content is its context.
        problem = "is not a text file in UTF-8"
    else:
        if user and password and len(text.splitlines()) == 1:
            return text
    raise UnusableSettingsError(f"{setting}: {path} {problem}")
