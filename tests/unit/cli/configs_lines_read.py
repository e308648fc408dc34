"""Command lines of Kafka's own ConfigCommandTest, of KIP-21, KIP-226 and KIP-649, that are read here.

``of`` names the test or the proposal. ``--bootstrap-server``, which all of Kafka's lines begin with, is left out but in
the cases of servers; ``{file}`` is a properties file.

Source: core/src/test/java/kafka/admin/ConfigCommandTest.java of Kafka 3.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROPERTIES: Final = 'a=b\nc = d\njson = {"key": "val"}\nnested = [[1, 2], [3, 4]]'
IN_FILE: Final = {"a": "b", "c": "d", "json": '{"key": "val"}', "nested": "[[1, 2], [3, 4]]"}


class Read(NamedTuple):
    """A line that is sound in itself."""

    of: str
    line: str
    types: tuple[str, ...]
    names: tuple[str, ...]
    added: Mapping[str, str] = {}
    deleted: tuple[str, ...] = ()


def _parsed(of: str, kind: str, name: str) -> Iterator[Read]:
    """The lines that Kafka's test tries with each type of entity."""
    short = f"--{kind[:-1]} {name}"
    for entity in (f"--entity-name {name} --entity-type {kind}", short):
        where = (kind,), (name,)
        yield Read(of, f"{entity} --describe", *where)
        yield Read(of, f"{entity} --alter --add-config a=b,c=d", *where, {"a": "b", "c": "d"})
        yield Read(of, f"{entity} --alter --add-config-file {{file}}", *where, IN_FILE)
        yield Read(of, f"{entity} --alter --delete-config a,b,c", *where, {}, ("a", "b", "c"))
        yield Read(of, f"{entity} --alter --add-config a=b,c=d --delete-config a", *where, {"a": "b", "c": "d"}, ("a",))
        yield Read(
            of,
            f"{entity} --alter --add-config a._-c=b,c=,d=e,f=",
            *where,
            {"a._-c": "b", "c": "", "d": "e", "f": ""},
        )


_AB: Final = {"a": "b", "c": "d"}
_CN: Final = "CN=ConfigCommandTest,O=Apache,L=<default>"
_NAMES: Final = "testOptionEntityTypeNames"
_OPTS: Final = "testUserClientQuotaOpts"
_ENTITY: Final = "testQuotaConfigEntity"
_DESCRIBED: Final = "testQuotaDescribeEntities"

READ: Final = (
    *_parsed("shouldParseArgumentsForClientsEntityTypeWithBrokerBootstrap", "clients", "1"),
    *_parsed("shouldParseArgumentsForUsersEntityTypeWithBrokerBootstrap", "users", "1"),
    *_parsed("shouldParseArgumentsForTopicsEntityTypeWithBrokerBootstrap", "topics", "1"),
    *_parsed("shouldParseArgumentsForBrokersEntityTypeWithBrokerBootstrap", "brokers", "1"),
    *_parsed("shouldParseArgumentsForIpEntityTypeWithBrokerBootstrap", "ips", "10.0.0.1"),
    *_parsed("shouldParseArgumentsForGroupEntityTypeWithBrokerBootstrap", "groups", "1"),
    Read(
        "testParseConfigsToBeAddedForAddConfigFile",
        "--entity-name 1 --entity-type brokers --alter --add-config-file {file}",
        ("brokers",),
        ("1",),
        IN_FILE,
    ),
    *(
        Read("testEntityDefaultForType", f"--entity-default --entity-type {kind} --describe", (kind,), ("",))
        for kind in ("clients", "users", "brokers", "ips")
    ),
    Read(_NAMES, "--describe --entity-type topics --entity-name A", ("topics",), ("A",)),
    Read(_NAMES, "--describe --entity-name 1.2.3.4 --entity-type ips", ("ips",), ("1.2.3.4",)),
    Read(_NAMES, "--describe --entity-type client-metrics --entity-name A", ("client-metrics",), ("A",)),
    Read(_NAMES, "--describe --entity-type groups --entity-name A", ("groups",), ("A",)),
    Read(
        _NAMES,
        "--describe --entity-type users --entity-type clients --entity-name A --entity-default",
        ("users", "clients"),
        ("A", ""),
    ),
    Read(
        _NAMES,
        "--describe --entity-default --entity-name B --entity-type users --entity-type clients",
        ("users", "clients"),
        ("", "B"),
    ),
    Read(_NAMES, "--describe --topic A", ("topics",), ("A",)),
    Read(_NAMES, "--describe --ip 1.2.3.4", ("ips",), ("1.2.3.4",)),
    Read(_NAMES, "--describe --group A", ("groups",), ("A",)),
    Read(_NAMES, "--describe --client B --user A", ("clients", "users"), ("B", "A")),
    Read(_NAMES, "--describe --client B --user-defaults", ("clients", "users"), ("B", "")),
    Read(
        _NAMES,
        "--describe --entity-type clients --entity-type users --entity-name A",
        ("clients", "users"),
        ("A",),
    ),
    *(
        Read(_NAMES, f"--describe --entity-type {kind}", (kind,), ())
        for kind in ("topics", "ips", "groups", "client-metrics", "users", "brokers")
    ),
    Read(_NAMES, "--describe --entity-name 0 --entity-type brokers", ("brokers",), ("0",)),
    Read(_NAMES, "--describe --broker 0", ("brokers",), ("0",)),
    Read(
        "testNoSpecifiedEntityOptionWithDescribeBrokersInBootstrapServerIsAllowed",
        "--entity-type brokers --describe",
        ("brokers",),
        (),
    ),
    Read("testDescribeAllBrokerConfig", "--entity-type brokers --entity-name 1 --describe --all", ("brokers",), ("1",)),
    Read(
        "testDescribeAllTopicConfig", "--entity-type topics --entity-name foo --describe --all", ("topics",), ("foo",)
    ),
    Read(
        "shouldSupportCommaSeparatedValuesUsingZookeeper",
        "--entity-name my-topic --entity-type topics --alter --add-config 'a=b,c=[d,e ,f],g=[h,i]'",
        ("topics",),
        ("my-topic",),
        {"a": "b", "c": "d,e ,f", "g": "h,i"},
    ),
    # ------------------------------------------------------------ users and clients
    *(
        Read(_ENTITY, f"--entity-type {kind} --entity-name '{name}' {action}", (kind,), (name,), added)
        for kind, name in (("clients", "client-1"), ("clients", ""), ("users", _CN), ("users", ""))
        for action, added in (("--describe", {}), ("--alter --add-config a=b,c=d", _AB))
        if name or not added  # refused, see configs_lines_refused
    ),
    Read(_ENTITY, "--entity-type clients --describe", ("clients",), ()),
    *(
        Read(
            _ENTITY,
            f"--entity-type users --entity-name '{user}' {action} --entity-type clients --entity-name '{client}'",
            ("users", "clients"),
            (user, client),
            added,
        )
        for user, client in ((_CN, "client-1"), (_CN, ""), ("", "client-1"), ("", ""))
        for action, added in (("--describe", {}), ("--alter --add-config a=b,c=d", _AB))
        if (user and client) or not added
    ),
    Read(
        _ENTITY,
        f"--entity-type users --entity-name '{_CN}' --describe --entity-type clients",
        ("users", "clients"),
        (_CN,),
    ),
    *(
        Read(_OPTS, f"--entity-type {kind} --entity-name '<default>' --alter --add-config a=b,c=d", (kind,), names, _AB)
        for kind, names in (("users", ("<default>",)), ("clients", ("<default>",)))
    ),
    *(
        Read(_OPTS, f"{line} --alter --add-config a=b,c=d", types, names, _AB)
        for line, types, names in (
            (
                "--entity-type users --entity-name CN=user1 --entity-type clients --entity-name client1",
                ("users", "clients"),
                ("CN=user1", "client1"),
            ),
            (
                "--entity-name CN=user1 --entity-type users --entity-name client1 --entity-type clients",
                ("users", "clients"),
                ("CN=user1", "client1"),
            ),
            (
                "--entity-type clients --entity-name client1 --entity-type users --entity-name CN=user1",
                ("clients", "users"),
                ("client1", "CN=user1"),
            ),
            (
                "--entity-name client1 --entity-type clients --entity-name CN=user1 --entity-type users",
                ("clients", "users"),
                ("client1", "CN=user1"),
            ),
            (
                "--entity-name 'client1?@%' --entity-type clients --entity-name CN=user1 --entity-type users",
                ("clients", "users"),
                ("client1?@%", "CN=user1"),
            ),
        )
    ),
    Read(_OPTS, "--entity-type clients --entity-type users --describe", ("clients", "users"), ()),
    *(
        Read(_DESCRIBED, f"--describe {line}", types, names)
        for line, types, names in (
            ("--entity-type clients --entity-name a-client", ("clients",), ("a-client",)),
            ("--entity-type clients --entity-default", ("clients",), ("",)),
            ("--entity-type users --entity-name 'CN=a , O=b'", ("users",), ("CN=a , O=b",)),
            ("--entity-type users --entity-default", ("users",), ("",)),
            ("--entity-type users --entity-name a --entity-type clients", ("users", "clients"), ("a",)),
            ("--entity-type users --entity-default --entity-type clients", ("users", "clients"), ("",)),
            ("--entity-type users --entity-type clients", ("users", "clients"), ()),
        )
    ),
    # ------------------------------------------------------------ the proposals
    Read(
        "KIP-21",
        "--alter-config --entity-type topic --entity-name orders --added-config a=b,c=d --deleted-config e,f",
        ("topics",),
        ("orders",),
        _AB,
        ("e", "f"),
    ),
    Read("KIP-21", "--describe-config --entity-type client --entity-name billing", ("clients",), ("billing",)),
    *(
        Read("KIP-21", f"--describe-config --entity-type {singular}", (plural,), ())
        for singular, plural in (
            ("topic", "topics"),
            ("client-id", "clients"),
            ("user", "users"),
            ("broker", "brokers"),
            ("ip", "ips"),
            ("group", "groups"),
        )
    ),
    Read(
        "KIP-226",
        "--alter --add-config log.cleaner.threads=2 --entity-type brokers --entity-default",
        ("brokers",),
        ("",),
        {"log.cleaner.threads": "2"},
    ),
    Read("KIP-226", "--describe --entity-type brokers --entity-default", ("brokers",), ("",)),
    Read("KIP-226", "--describe --entity-type brokers --entity-name 0", ("brokers",), ("0",)),
    Read(
        "KIP-226",
        "--entity-type brokers --entity-name 0 --alter --add-config"
        " listener.name.internal.ssl.keystore.location=/k.jks,listener.name.internal.ssl.keystore.password=p",
        ("brokers",),
        ("0",),
        {
            "listener.name.internal.ssl.keystore.location": "/k.jks",
            "listener.name.internal.ssl.keystore.password": "p",
        },
    ),
    Read(
        "KIP-226",
        "--entity-type brokers --entity-name 0 --alter --delete-config listener.name.a.ssl.keystore.location",
        ("brokers",),
        ("0",),
        {},
        ("listener.name.a.ssl.keystore.location",),
    ),
    Read(
        "KIP-649",
        "--alter --entity-type users --entity-name alice --add-config acks=-1,session.timeout.ms=11000",
        ("users",),
        ("alice",),
        {"acks": "-1", "session.timeout.ms": "11000"},
    ),
    Read(
        "KIP-649",
        "--describe --entity-type users --entity-name alice --entity-type clients",
        ("users", "clients"),
        ("alice",),
    ),
    Read(
        "KIP-649",
        "--alter --user alice --client clientid-override --delete-config supported.configs",
        ("clients", "users"),
        ("clientid-override", "alice"),
        {},
        ("supported.configs",),
    ),
    # ------------------------------------------------------------ the tool's parser
    Read("joptsimple", "-describe -topic a --force", ("topics",), ("a",)),
    Read("joptsimple", "--topic=a --describe=x", ("topics",), ("a",)),
    Read("joptsimple", "--describe --client --topic", ("clients",), ("--topic",)),
    Read(
        "joptsimple",
        "--alter --topic a --delete-config 'a,, b' --delete-config c",
        ("topics",),
        ("a",),
        {},
        ("a", "b", "c"),
    ),
    Read("joptsimple", "--alter --topic a --add-config 'a = [ b ] ,c=[d]'", ("topics",), ("a",), {"a": "b", "c": "d"}),
    Read("joptsimple", "--alter --topic a --add-config a=b,,", ("topics",), ("a",), {"a": "b"}),
)
