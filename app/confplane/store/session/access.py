"""This service's identity in ZooKeeper, and the ACL of every node that it creates.

Open is Kafka's default: anyone may do anything. Secure is the ACL of brokers with ``zookeeper.set.acl=true``: all
rights for the creator, and reading for anyone except below ``/config/users`` and ``/config/brokers``, which hold SCRAM
keys and passwords. Of this service's own nodes, markers and the freeze can't be read by anyone either: they hold
principals, request ids and reasons. Brokers name the creator alone. Here two parties may need the nodes: the brokers,
whose identity the ACL names, and this service, by the credentials of its session (scheme ``auth``, which ZooKeeper
replaces by the session's identity). Existing nodes keep their ACL.

Source: core/src/main/scala/kafka/zk/ZkData.scala (defaultAcls, sensitivePath).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kazoo.protocol.serialization import int_struct, write_string
from kazoo.security import ACL, AUTH_IDS, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, Permissions

from confplane.settings import UnusableSettingsError
from confplane.store import znodes

if TYPE_CHECKING:
    from pathlib import Path

    from confplane.settings import SecureAclSettings
    from confplane.store.session.tls import ZooKeeperTls

_SENSITIVE: Final = ("/config/users", "/config/brokers", f"{znodes.COMMITS}/", znodes.FREEZE)


class ZooKeeperAccess:
    """The session's credentials and TLS, and the ACLs by path.

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
        sensitive: list[ACL] = OPEN_ACL_UNSAFE
        others: list[ACL] = OPEN_ACL_UNSAFE
        if identity is not None:
            scheme, _, name = identity.partition(":")
            sensitive = [ACL(Permissions.ALL, Id(scheme, name)), ACL(Permissions.ALL, AUTH_IDS)]
            others = [*sensitive, *READ_ACL_UNSAFE]
        self._sensitive, self._others = _encoded(sensitive), _encoded(others)
        self.largest_acl = len(self._others)
        """The greatest size of an ACL in a request, in bytes."""

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

    def acl_of(self, path: str) -> bytes:
        """Return the ACL of a new node as it is in a request; the path is below the chroot."""
        # The test is a plain prefix, as in Kafka.
        return self._sensitive if path.startswith(_SENSITIVE) else self._others


def _encoded(acl: list[ACL]) -> bytes:
    # A count; for each entry its rights and two strings with their lengths.
    parts = [int_struct.pack(len(acl))]
    for each in acl:
        parts += int_struct.pack(each.perms), write_string(each.id.scheme), write_string(each.id.id)
    return b"".join(parts)


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
