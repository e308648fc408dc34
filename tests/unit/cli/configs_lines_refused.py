"""Command lines that Kafka's tool refuses, and those that are refused here alone; see ``configs_lines_read``."""

from __future__ import annotations

from typing import Final, NamedTuple


class Refused(NamedTuple):
    """A line that is refused before anything is sent."""

    of: str
    line: str
    reason: str
    """A part of the printed reason."""


_LOGGERS: Final = "Levels of loggers are kept by each broker"
_SCRAM: Final = "credentials are not configs"
_ADD_SCRAM: Final = "--add-config 'SCRAM-SHA-256=[iterations=8192,password=foo-secret]'"
_FORM: Final = "not of the form key=value"
_DIGITS: Final = "is not a legal broker name"
_NO_DEFAULT: Final = "have no default entity"

REFUSED: Final = (
    Refused("shouldExitWithNonZeroStatusOnArgError", "--blah", "--blah is not a valid option"),
    Refused(
        "shouldExitWithNonZeroStatusAlterUserQuotaWithoutEntityName",
        "--entity-type users --alter --add-config consumer_byte_rate=20000",
        "one name",
    ),
    *(
        Refused(of, f"{entity} --alter --add-config {text}", reason)
        for of, entity in (
            ("shouldParseArgumentsForTopicsEntityTypeWithBrokerBootstrap", "--topic 1"),
            ("shouldParseArgumentsForUsersEntityTypeWithBrokerBootstrap", "--user 1"),
        )
        for text, reason in (("'a;c=b'", "has the character ';'"), ("a,=b", _FORM))
    ),
    *(
        Refused("shouldParseArgumentsForBrokerLoggersEntityTypeWithBrokerBootstrap", line, _LOGGERS)
        for line in (
            "--entity-name 1 --entity-type broker-loggers --describe",
            "--broker-logger 1 --describe",
            "--broker-logger 1 --alter --add-config a=b,c=d",
            "--broker-logger 1 --alter --delete-config a,b,c",
        )
    ),
    Refused(
        "shouldFailIfAddAndAddFile",
        "--entity-name 1 --entity-type brokers --alter --add-config a=b,c=d --add-config-file {file}",
        "not both",
    ),
    *(
        Refused("testEntityDefaultForType", f"--entity-default --entity-type {kind} --describe", reason)
        for kind, reason in (
            ("topics", _NO_DEFAULT),
            ("broker-loggers", _LOGGERS),
            ("client-metrics", _NO_DEFAULT),
            ("groups", _NO_DEFAULT),
        )
    ),
    Refused(
        "shouldFailIfUnrecognisedEntityType",
        "--entity-name client --entity-type not-recognised --alter --add-config a=b,c=d",
        "'not-recognised' is not a valid type",
    ),
    Refused(
        "shouldFailIfBrokerEntityTypeIsNotAnInteger",
        "--entity-name A --entity-type brokers --alter --add-config a=b,c=d",
        _DIGITS,
    ),
    Refused("shouldFailIfShortBrokerEntityTypeIsNotAnInteger", "--broker A --alter --add-config a=b,c=d", _DIGITS),
    Refused(
        "shouldFailIfMixedEntityTypeFlags",
        "--entity-name A --entity-type users --client B --describe",
        "can't be combined",
    ),
    Refused("shouldFailIfInvalidHost", "--entity-name A,B --entity-type ips --describe", "not an IPv4 address"),
    Refused(
        "shouldFailIfUnresolvableHost", "--entity-name RFC2606.invalid --entity-type ips --describe", "not an IPv4"
    ),
    *(
        Refused(
            "shouldNotAlterNonQuotaIpConfigsUsingBootstrapServer", f"--alter --ip 127.0.0.1 {ops}", "some_config: ips"
        )
        for ops in (
            "--add-config connection_creation_rate=10000,some_config=10",
            "--add-config some_config=10",
            "--delete-config connection_creation_rate,some_config",
            "--delete-config some_config",
        )
    ),
    *(
        Refused("shouldNotAlterNonQuotaNonScramUserOrClientConfigUsingBootstrapServer", f"--alter {line}", reason)
        for line, reason in (
            ("--entity-type clients --entity-name admin --add-config some_config=10", "some_config: clients"),
            ("--entity-type clients --entity-name admin --delete-config some_config", "some_config: clients"),
            ("--entity-type users --entity-name admin --delete-config SCRAM-SHA-256,some_config", _SCRAM),
        )
    ),
    *(
        Refused("shouldNotAlterScramClientConfigUsingBootstrapServer", f"--alter --client admin {ops}", _SCRAM)
        for ops in (_ADD_SCRAM, "--delete-config SCRAM-SHA-256")
    ),
    Refused(
        "shouldNotCreateUserScramCredentialConfigWithUnderMinimumIterationsUsingBootstrapServer",
        "--alter --user admin --add-config 'SCRAM-SHA-256=[iterations=100,password=foo-secret]'",
        _SCRAM,
    ),
    *(
        Refused(
            "shouldNotAlterUserScramCredentialAndClientQuotaConfigsSimultaneouslyUsingBootstrapServer",
            f"--alter --user admin {ops}",
            _SCRAM,
        )
        for ops in (
            f"{_ADD_SCRAM} --delete-config consumer_byte_rate",
            "--delete-config SCRAM-SHA-256 --add-config consumer_byte_rate=20000",
        )
    ),
    *(
        Refused("shouldNotDescribeUserScramCredentialsWithEntityDefaultUsingBootstrapServer", line, _SCRAM)
        for line in (
            f"--alter --user-defaults {_ADD_SCRAM}",
            "--alter --entity-type users --entity-default --delete-config SCRAM-SHA-256",
        )
    ),
    Refused(
        "shouldAddBrokerLoggerConfig",
        "--entity-type broker-loggers --alter --entity-name 1 --add-config kafka.log.LogCleaner=DEBUG"
        " --delete-config kafka.server.ReplicaManager,kafka.server.KafkaApi",
        _LOGGERS,
    ),
    *(
        Refused(of, f"--entity-type broker-loggers --entity-default {action}", _LOGGERS)
        for of, action in (
            ("testEntityDefaultOptionWithDescribeBrokerLoggerIsNotAllowed", "--describe"),
            (
                "testEntityDefaultOptionWithAlterBrokerLoggerIsNotAllowed",
                "--alter --add-config kafka.log.LogCleaner=DEBUG",
            ),
        )
    ),
    Refused(
        "shouldNotUpdateBrokerConfigIfMalformedEntityName",
        "--entity-name 1,2,3 --entity-type brokers --alter --add-config leader.replication.throttled.rate=10",
        _DIGITS,
    ),
    Refused("shouldNotUpdateBrokerConfigIfMalformedConfig", "--broker 1 --alter --add-config a==", _FORM),
    Refused(
        "shouldNotUpdateBrokerConfigIfMalformedBracketConfig", "--broker 1 --alter --add-config 'a=[b,c,d=e'", _FORM
    ),
    *(
        Refused("testQuotaConfigEntity", line, "one name")
        for line in (
            "--entity-type clients --alter --add-config a=b,c=d",
            "--entity-type users --entity-name a --alter --add-config a=b,c=d --entity-type clients",
            "--entity-type users --alter --add-config a=b,c=d --entity-type clients --entity-name b",
            "--entity-type users --alter --add-config a=b,c=d --entity-type clients",
        )
    ),
    Refused(
        "shouldNotAlterClientMetricsConfigWithoutEntityName",
        "--entity-type client-metrics --alter --add-config interval.ms=1000",
        "client-metrics needs a name",
    ),
    Refused(
        "shouldNotAlterGroupConfigWithoutEntityName",
        "--entity-type groups --alter --add-config consumer.heartbeat.interval.ms=6000",
        "groups needs a name",
    ),
    # ------------------------------------------------------------ rules of the tool that its tests do not reach
    Refused("checkArgs", "--topic a", "exactly one action"),
    Refused("checkArgs", "--topic a --describe --alter", "exactly one action"),
    Refused("checkArgs", "--topic a --describe --add-config a=b", "--describe changes nothing"),
    Refused("checkArgs", "--topic a --describe --delete-config a", "--describe changes nothing"),
    Refused("checkArgs", "--topic a --alter", "--alter needs"),
    Refused("checkArgs", "--describe", "Give an entity type"),
    Refused("checkArgs", "--describe --entity-type topics --entity-type topics", "given twice"),
    Refused("checkArgs", "--describe --topic a --user b", "Only users and clients"),
    Refused("checkArgs", "--describe --ip 1.2.3.4 --ip-defaults", "given twice"),
    Refused("joptsimple", "--describe --topic", "--topic needs a value"),
    Refused("joptsimple", "--describe --user a --user b", "--user is given 2 times"),
    Refused("joptsimple", "--descr --topic a", "--descr is not a valid option"),
    Refused(
        "getAllClientQuotasConfigs", "--describe --entity-type users --entity-name a --entity-name b", "more names"
    ),
    # ------------------------------------------------------------ refused here alone
    Refused("a word of no option", "--alter --topic a --add-config a=1, b=hidden", "A word after --add-config"),
    Refused("an ip that is no address of four numbers", "--describe --ip 1", "not an IPv4 address"),
    *(
        Refused("an empty name, as of an unset variable", f"{entity} --alter --add-config a=b", reason)
        for entity, reason in (
            ("--user ''", "--user has an empty name; --user-defaults names the default entity"),
            ("--user=", "--user has an empty name; --user-defaults names the default entity"),
            ("--broker ''", "--broker has an empty name; --broker-defaults names the default entity"),
            ("--client '' --user a", "--client has an empty name; --client-defaults names the default entity"),
            ("--ip ''", "--ip has an empty name; --ip-defaults names the default entity"),
            ("--topic ''", "--topic has an empty name\n"),
            ("--group ''", "--group has an empty name\n"),
            ("--entity-type users --entity-name ''", "--entity-name has an empty name; --entity-default names"),
            ("--entity-type clients --entity-name ''", "--entity-name has an empty name; --entity-default names"),
            (
                "--entity-type users --entity-name '' --entity-type clients --entity-name client-1",
                "--entity-name has an empty name; --entity-default names",
            ),
            (
                "--entity-type users --entity-name a --entity-type clients --entity-name ''",
                "--entity-name has an empty name; --entity-default names",
            ),
        )
    ),
    *(
        Refused("a key that is added and deleted", f"{line} --alter", "a key is either added or deleted in one command")
        for line in (
            "--topic a --add-config retention.ms=1 --delete-config retention.ms",
            "--user a --add-config acks=1,producer_byte_rate=5 --delete-config producer_byte_rate",
            "--broker-defaults --add-config-file {file} --delete-config json",
        )
    ),
    Refused(
        "brackets that may belong to a value", "--alter --broker 1 --add-config a=[hidden", "--add-config-file FILE"
    ),
    Refused(
        "a key that is added twice", "--alter --topic a --add-config a=1,a=2", "config 2 has the key of an earlier"
    ),
    Refused("a file of an action that reads none", "--describe --topic a --add-config-file {file}", "changes nothing"),
)

SERVERS: Final = {
    "--bootstrap-server": (
        "shouldExitWithNonZeroStatusOnBrokerCommandError",
        "shouldParseArgumentsForClientsEntityTypeWithBrokerBootstrap",
    ),
    "--bootstrap-controller": tuple(
        f"shouldParseArgumentsFor{kind}EntityTypeWithControllerBootstrap"
        for kind in ("Clients", "Users", "Topics", "Brokers", "BrokerLoggers", "Ip", "Group")
    ),
    "--broker-list": ("KIP-21",),
    "--zk-tls-config-file": ("shouldExitWithNonZeroStatusOnBrokerCommandWithZkTlsConfigFile",),
    "--zookeeper": ("testOptionEntityTypeNamesUsingZookeeper", "and each test whose name has Zookeeper, Zk or ZK"),
}
"""Options that name servers, with tests of Kafka that begin their lines with them."""
