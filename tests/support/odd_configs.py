"""A cluster's znodes with odd names and values, which an export must transfer to another cluster unchanged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from confplane.domain.entities import sanitize
from confplane.domain.facets import Tree

if TYPE_CHECKING:
    from kazoo.client import KazooClient

NAMES: Final = (
    "CN=Alice, O=Acme/x y*\u00e9",
    "<default>",
    "~+%2F%",
    "\U0001f511 \u5bc6\u94a5",
    'it\'s "$HOME" `id` ${x} %{y} $${z} \\n',
    "two\n- id: user=lines\n\tEND",
    " ",
    "-x",
    "null",
    "1e3",
)
"""Names that quoting, escaping or a form's own syntax may corrupt; the real name ``<default>`` is not the default."""
_SECRET: Final = "listener.name.internal.ssl.keystore.password"
_PRINCIPALS: Final = "listener.name.internal.ssl.principal.mapping.rules"
NODES: Final[dict[str, dict[str, str]]] = {
    "users/<default>": {"producer_byte_rate": "1024", "session.timeout.ms": "20000"},
    "users/alice": {
        "producer_byte_rate": "9007199254740992",
        "request_percentage": "50.5",
        "controller_mutation_rate": "1.0E-4",
        "acks": "all",
        "SCRAM-SHA-256": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096",
    },
    "users/alice/clients/<default>": {"consumer_byte_rate": "0"},
    "users/<default>/clients/<default>": {"consumer_byte_rate": "7"},
    "users/scram-only": {"SCRAM-SHA-512": "salt=eA==,stored_key=eA==,server_key=eA==,iterations=4096"},
    "clients/<default>": {"request_percentage": "200.0"},
    "ips/<default>": {"connection_creation_rate": "10"},
    "ips/10.0.0.1": {"connection_creation_rate": "2147483647"},
    "topics/orders": {"retention.ms": "86400000", "cleanup.policy": "compact,delete"},
    "topics/a.b_c-d": {"leader.replication.throttled.replicas": "*"},
    "brokers/<default>": {"log.retention.ms": "604800000", "log.cleanup.policy": "delete"},
    "brokers/3": {
        "background.threads": "12",
        _SECRET: "encoded",
        "listener.name.internal.ssl.endpoint.identification.algorithm": "",
    },
    "brokers/4": {
        _PRINCIPALS: "RULE:^CN=(.*?), OU=[a-z]+$/$1/L,DEFAULT",
        "listener.name.internal.ssl.keystore.location": '/etc/\u00e9 = ${x}%{y}$${z}/it\'s\n"two" \\ lines.jks',
    },
    **{f"users/{sanitize(name)}": {"producer_byte_rate": "1"} for name in NAMES},
    **{f"clients/{sanitize(name)}": {"consumer_byte_rate": "2"} for name in NAMES},
    **{f"users/{sanitize(name)}/clients/{sanitize(name[::-1])}": {"request_percentage": "3.0"} for name in NAMES},
}
"""Configs by the path of the znode below ``/config``."""
SECRETS: Final = 1


def write(zk: KazooClient) -> None:
    """Write the znodes, and the topics."""
    for path, config in NODES.items():
        zk.ensure_path(f"{Tree.CONFIG}/{path}")
        zk.set(f"{Tree.CONFIG}/{path}", json.dumps({"version": 1, "config": config}).encode())
    write_topics(zk)


def write_topics(zk: KazooClient) -> None:
    """Write the topics alone, without configs."""
    for path in NODES:
        kind, _, name = path.partition("/")
        if kind == "topics":
            zk.ensure_path(f"/brokers/topics/{name}")


def exportable() -> dict[str, dict[str, str]]:
    """Return all configs except secrets and credentials."""
    hidden = {_SECRET, "SCRAM-SHA-256", "SCRAM-SHA-512"}
    kept = {path: {key: value for key, value in node.items() if key not in hidden} for path, node in NODES.items()}
    return {path: config for path, config in kept.items() if config}


def stored(zk: KazooClient) -> dict[str, dict[str, str]]:
    """Return all configs that a cluster has, without empty ones."""
    found: dict[str, dict[str, str]] = {}

    def walk(path: str) -> None:
        data = zk.get(f"{Tree.CONFIG}/{path}")[0]
        if data and (config := json.loads(data)["config"]):
            found[path] = config
        for child in zk.get_children(f"{Tree.CONFIG}/{path}"):
            walk(f"{path}/{child}")

    for kind in ("users", "clients", "ips", "topics", "brokers"):
        if zk.exists(f"{Tree.CONFIG}/{kind}"):
            walk(kind)
    return found
