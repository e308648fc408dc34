"""Every input by which a secret can reach the service, accepted or refused: requests and external writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from confplane.crypto.password_encoder import EncoderParameters, PasswordEncoder

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from tests.support.planted import Asker, Planted

BASE: Final = "/v1/clusters/default"
KEY: Final = "listener.name.external.ssl.key.password"
KEYSTORE: Final = "listener.name.external.ssl.keystore.password"
JAAS: Final = "listener.name.external.plain.sasl.jaas.config"
TRUSTSTORE: Final = "listener.name.external.ssl.truststore.password"
CUSTOM: Final = "my.plugin.token"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(password: str, *, flag: str = "required", end: str = ";") -> str:
    return f'{PLAIN} {flag} username="u" password="{password}"{end}'


def seed(zk: KazooClient, planted: Planted) -> None:
    """Store znodes like Kafka's tools do, like other tools do, and in ways that no sane tool uses."""
    fast = EncoderParameters(iterations=1024)
    foreign = PasswordEncoder(planted("a secret that nobody has"), fast).encode(planted("under another secret"))
    planted.stored(foreign)
    in_clear, custom = planted("in clear"), planted("custom, stored before")
    broken, nested, topic = planted("broken"), planted("nested"), planted("unknown key of a topic")
    salt, key, carol = planted("SCRAM salt"), planted("SCRAM key"), planted("SCRAM, broken")
    scram = f"salt={salt},stored_key={key},server_key={key},iterations=4096"

    def entity(**config: Any) -> str:
        return json.dumps({"version": 1, "config": config})

    for path, data in {
        "/config/brokers/3": entity(**{KEY: broken})[:-3],
        "/config/brokers/4": entity(**{KEY: foreign, KEYSTORE: in_clear, "log.cleaner.threads": "2"}),
        "/config/brokers/5": entity(**{KEY: {"value": nested}}),
        "/config/brokers/<default>": entity(**{KEY: in_clear, CUSTOM: custom, "log.cleaner.threads": "2"}),
        "/config/topics/orders": entity(**{"retention.ms": "60000", "made.up": topic}),
        "/config/users/alice": entity(**{"SCRAM-SHA-512": scram, "producer_byte_rate": "1024"}),
        "/config/users/carol": entity(**{"SCRAM-SHA-512": carol})[:-3],
        "/brokers/config": json.dumps(
            {
                "version": "1",
                "config": {
                    "message.max.bytes": "200000",
                    "ssl.keystore.password": planted("legacy password"),
                    "sasl.jaas.config": jaas(planted("legacy jaas")),
                    "legacy.custom": planted("legacy custom"),
                },
            }
        ),
        "/config/changes": "",
    }.items():
        zk.ensure_path(path)
        zk.set(path, data.encode())


def write_resources(ask: Asker, planted: Planted) -> None:
    """PUT and POST, with accepted and refused content."""
    good = {
        KEY: planted("PUT"),
        KEYSTORE: planted("PUT"),
        JAAS: jaas(planted("PUT, jaas")),
        CUSTOM: planted("PUT, custom"),
        "log.cleaner.threads": "2",
    }
    one = f"{BASE}/configs/broker=0"
    ask("put", "PUT", one, {"configs": good})
    ask("put, full", "PUT", one, {"configs": good | {KEY: planted("PUT, full")}}, params={"view": "full"})
    ask("put, validateOnly", "PUT", one, {"configs": {KEY: planted("PUT, dry")}}, params={"validateOnly": "true"})
    ask("put, stale", "PUT", one, {"configs": {KEY: planted("PUT, stale")}}, headers={"If-Match": '"0"'})
    ask("put, etag in body", "PUT", one, {"configs": {KEY: planted("PUT, stale")}, "etag": '"0"'})
    for way in ("created", "created otherwise"):
        body = {"id": "broker=20", "configs": {KEY: planted(way), CUSTOM: planted(f"{way}, custom")}}
        ask(way, "POST", f"{BASE}/configs", body)
    for way, configs in {
        "beside a bad value": {KEY: planted("beside"), CUSTOM: planted("beside"), "log.cleaner.threads": "many"},
        "a list": {KEY: [planted("list")]},
        "an object": {KEY: {"value": planted("object")}},
        "a list in a custom key": {CUSTOM: [planted("list")]},
        "jaas without an end": {JAAS: jaas(planted("jaas"), end="")},
        "jaas of two": {JAAS: jaas(planted("jaas")) + jaas(planted("jaas"))},
        "jaas of no flag": {JAAS: jaas(planted("jaas"), flag=planted("flag"))},
        "jaas of no module": {JAAS: planted("jaas")},
        "jaas cut": {JAAS: jaas(planted("jaas"), end='" x="')},
        "jaas in upper case": {JAAS.replace("plain", "PLAIN"): jaas(planted("jaas"))},
        "jaas of no listener": {"sasl.jaas.config": jaas(planted("jaas"))},
        "refused by a rule": {TRUSTSTORE: planted("rule")},
        "a lone surrogate": {KEY: planted("surrogate") + "\ud800"},
        "a NUL": {KEY: planted("NUL") + "\0"},
        "read-only": {"password.encoder.secret": planted("read-only"), "ssl.key.password": planted("no prefix")},
        "too large": {KEY: planted("large") * 100_000},
    }.items():
        ask(way, "PUT", f"{BASE}/configs/broker=22", {"configs": configs})
    ask("protected", "PUT", f"{BASE}/configs/broker=66", {"configs": {KEY: planted("protected")}})
    ask("default", "PUT", f"{BASE}/configs/broker", {"configs": {KEY: planted("default"), CUSTOM: planted("default")}})
    ask(
        "topic",
        "PUT",
        f"{BASE}/configs/topic=orders",
        {"configs": {"made.up": planted("topic"), "x.y": planted("topic")}},
    )
    ask("junk node", "PUT", f"{BASE}/configs/broker=3", {"configs": {KEY: planted("junk node")}})
    ask("nested node", "PUT", f"{BASE}/configs/broker=5", {"configs": {KEY: planted("nested node")}})
    ask("mended", "PUT", f"{BASE}/configs/broker=4", {"configs": {KEY: planted("mended"), KEYSTORE: None}})
    ask("cut body", "PUT", one, b'{"configs":{"%s":"%s"' % (KEY.encode(), planted("cut body").encode()))
    ask(
        "twice",
        "PUT",
        one,
        b'{"configs":{"x.token":"%s","x.token":"%s"}}' % tuple(planted("twice").encode() for _ in "12"),
    )
    ask("no object", "PUT", one, {"configs": planted("no object")})
    ask("unknown member", "PUT", one, {"configs": {KEY: planted("member")}, "password": planted("member")})
    ask("wrong token", "GET", one, headers={"Authorization": f"Bearer {planted('token')}"})
    ask("another scheme", "GET", one, headers={"Authorization": f"Basic {planted('basic')}"})


def write_rpc(ask: Asker, planted: Planted) -> None:
    """The methods that accept several entities."""

    def alter(way: str, kind: str, name: str, *configs: dict[str, Any], **members: Any) -> None:
        resources = [{"resourceType": kind, "resourceName": name, "configs": list(configs)}]
        ask(way, "POST", f"{BASE}/configs:incrementalAlter", {"resources": resources, **members})

    def op(name: str, operation: Any, value: Any) -> dict[str, Any]:
        return {"name": name, "configOperation": operation, "value": value}

    alter("SET", "BROKER", "1", op(KEY, "SET", planted("SET")), op(CUSTOM, 0, planted("SET")))
    alter("SET again", "BROKER", "1", op(KEY, "SET", planted("SET")), op(CUSTOM, 0, planted("SET")))
    alter("SET, dry", "BROKER", "1", op(KEY, "SET", planted("SET")), validateOnly=True)
    alter("DELETE with a value", "BROKER", "1", op(KEY, "DELETE", planted("DELETE")))
    alter("APPEND", "BROKER", "1", op(KEY, "APPEND", planted("APPEND")))
    alter("APPEND, custom", "BROKER", "1", op(CUSTOM, "APPEND", planted("APPEND")))
    alter("SUBTRACT", "BROKER", "1", op(CUSTOM, "SUBTRACT", planted("SUBTRACT")))
    alter("no operation", "BROKER", "1", op(KEY, 9, planted("operation")))
    alter("a key twice", "BROKER", "1", *(op(KEY, "SET", planted("twice")) for _ in "12"))
    alter("a number", "BROKER", "1", op(KEY, "SET", [planted("list")]))
    alter("no type", "NONE", "1", op(KEY, "SET", planted("type")))
    alter("no broker", "BROKER", "one", op(KEY, "SET", planted("name")))
    alter("of all", "BROKER", "", op(KEY, "SET", planted("all")), op(CUSTOM, "SET", planted("all")))
    alter("unknown to topics", "TOPIC", "orders", op("made.up", "SET", planted("topic")))
    alter("stored without a secret", "BROKER", "2", op(KEY, "SET", planted("no secret")))
    entity = {
        "entityType": "broker",
        "entityName": "1",
        "addedConfigs": [{"configKey": KEY, "configValue": planted("KIP-21")}],
    }
    whole = {**entity, "entityName": None, "addedConfigs": [{"configKey": KEY, "configValue": planted("KIP-21, all")}]}
    user = {
        "entityType": "user",
        "entityName": "alice",
        "addedConfigs": [{"configKey": "SCRAM-SHA-512", "configValue": f"[password={planted('KIP-21, SCRAM')}]"}],
    }
    ask("KIP-21", "POST", f"{BASE}/entity-configs:alter", {"entities": [entity]})
    ask("KIP-21, all", "POST", f"{BASE}/entity-configs:alter", {"entities": [whole, user]})
    ask(
        "KIP-21, gone",
        "POST",
        f"{BASE}/entity-configs:alter",
        {"entities": [{**entity, "addedConfigs": [], "deletedConfigs": [KEY]}]},
    )
    for key in (KEY, "sasl.jaas.config", CUSTOM, "ssl.keystore.password"):
        data = [{"configKey": key, "configValue": planted(f"KIP-5, {key}")}]
        ask(f"KIP-5, {key}", "POST", f"{BASE}/global-config:change", {"configData": data})
    for facet, member in (("client-quotas", "quotas"), ("client-configs", "configs")):
        secret = {"SCRAM-SHA-512": planted(f"{facet}, SCRAM"), "ssl.key.password": planted(facet)}
        ask(f"{facet}, put", "PUT", f"{BASE}/{facet}/user=alice", {member: secret})
        ask(f"{facet}, post", "POST", f"{BASE}/{facet}", {"id": "user=dave", member: secret})
        ops = [{"key": key, "value": value} for key, value in secret.items()]
        entry = {"entity": [{"entityType": "user", "entityName": "alice"}], "ops": ops}
        ask(f"{facet}, alter", "POST", f"{BASE}/{facet}:alter", {"entries": [entry]})
        both = {"entity": entry["entity"], "quotas": [], "configs": [], member: ops}
        ask(f"clients, alter of {member}", "POST", f"{BASE}/clients:alter", {"entries": [both]})


def write_openly(ask: Asker) -> None:
    """Write values that are no secrets, which prove what the search covers, and changes next to secrets."""
    ask(
        "seen",
        "PUT",
        f"{BASE}/client-quotas/user=alice",
        {"quotas": {"producer_byte_rate": 2048}},
        params={"reason": "visible-reason"},
    )
    ask("seen, configs", "PUT", f"{BASE}/client-configs/user=alice", {"configs": {"acks": "1"}})
    for facet in ("client-quotas", "client-configs"):
        ask("gone", "DELETE", f"{BASE}/{facet}/user=alice")
    hour = {"expiresIn": "3600"}
    begun = ask(
        "temporary", "PUT", f"{BASE}/client-quotas/user=briefly", {"quotas": {"request_percentage": 1}}, params=hour
    )
    ask("temporary, end", "POST", f"{BASE}/schedules/{begun.headers['confplane-change-id']}:end")
    ask("temporary, pause", "POST", f"{BASE}/schedules:pause", {"reason": "visible-reason"})
    ask("temporary, resume", "POST", f"{BASE}/schedules:resume")
    said = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": "1"}
    ask("reported", "PUT", f"{BASE}/client-configs/user=alice/instances/one", said)
    ask("cleared", "DELETE", f"{BASE}/registrations", params={"all": "true"})
    for verb in ("freeze", "thaw"):
        ask(verb, "POST", f"{BASE}:{verb}", {"reason": "visible-reason"})


def manage_access(ask: Asker) -> None:
    """Make, use, replace and end tokens and grants."""
    made = ask("token, create", "POST", "/v1/tokens", {"principal": "User:app", "note": "visible-note"})
    secret = ask.shown_once("API token", made)
    own = {"headers": {"Authorization": f"Bearer {secret}"}}
    ask("token, used", "GET", "/v1/whoami", **own)
    ask("token, refused", "GET", "/v1/audit", **own)
    one = f"/v1/tokens/{made.json()['id']}"
    rotated = ask("token, rotate", "POST", f"{one}:rotate", {"overlapSeconds": 60})
    ask.shown_once("rotated API token", rotated)
    ask("token, get", "GET", one)
    ask("tokens", "GET", "/v1/tokens")
    ask("token, revoke", "DELETE", one)
    grant = {"principal": "User:app", "role": "viewer"}
    granted = f"/v1/grants/{ask('grant, create', 'POST', '/v1/grants', grant).json()['id']}"
    ask("grant, get", "GET", granted)
    ask("grant, put", "PUT", granted, {**grant, "note": "visible-note"})
    ask("grants", "GET", "/v1/grants")
    ask("access", "GET", f"{BASE}/access", params={"principal": "User:app"})
    checks = [{"operation": "FREEZE", "resourceType": "cluster"}]
    ask("access, check", "POST", f"{BASE}/access:check", {"checks": checks})
    ask("grant, delete", "DELETE", granted)
    ask("history", "GET", "/v1/audit", params={"pageSize": "1000"})


def plan_and_subscribe(ask: Asker, planted: Planted) -> None:
    """Plan a manifest with a password, make, use and remove a webhook whose URL is secret, and propose a password."""
    document = {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "entities": [{"id": "broker=4", "configs": {KEY: planted("manifest")}}],
    }
    plan = ask("manifest, plan", "POST", f"{BASE}/manifests:plan", document).json()["planId"]
    options = {"params": {"validateOnly": "true"}}
    ask("manifest, apply", "POST", f"{BASE}/manifests:apply", {**document, "planId": plan}, **options)
    ask("manifest, export", "GET", f"{BASE}/manifests:export")
    ask("manifest, export as YAML", "GET", f"{BASE}/manifests:export", headers={"Accept": "application/yaml"})
    ask("manifest, refused", "POST", f"{BASE}/manifests:apply", {**document, "planId": "0" * 40})
    one = f"{BASE}/webhooks/planted"
    url = f"https://user:{planted('user info')}@hooks.example.invalid/{planted('path')}?key={planted('query')}"
    made = ask("webhook, put", "PUT", one, {"url": url, "note": "visible-note"})
    ask.shown_once("signing secret", made, "secret")
    rotated = ask("webhook, rotate", "POST", f"{one}:rotate", {"overlapSeconds": 60})
    ask.shown_once("rotated signing secret", rotated, "secret")
    ask("webhook, refused", "PUT", one, {"url": f"http://hooks.example.invalid/{planted('refused path')}"})
    ask("webhook, assign", "POST", f"{one}:assign", {"owner": "User:admin"})
    ask("webhook, resume", "POST", f"{one}:resume")
    ask("webhook, test", "POST", f"{one}:test")
    ask("webhook, get", "GET", one)
    ask("webhook, deliveries", "GET", f"{one}/deliveries")
    ask("webhook, delete", "DELETE", one)
    propose(ask, planted)


def propose(ask: Asker, planted: Planted) -> None:
    """Propose a change of a password, and try everything that can be done with the request."""
    path, secret = f"{BASE}/change-requests", planted("proposed")
    content = {"edits": [{"facet": "configs", "id": "broker=0", "ops": [{"key": KEY, "value": secret}]}]}
    made = ask("proposed", "POST", path, content).json()
    supplied = {"values": [{"id": "broker=0", "key": KEY, "value": secret}]}
    for verb, body in (
        ("revise", content),
        ("comment", {"comment": "a test"}),
        ("approve", {"digest": made["digest"]}),
        ("apply", supplied),
        ("revert", {"partly": True}),
        ("reject", {"comment": "a test"}),
        ("cancel", {}),
    ):
        ask(f"proposed, {verb}", "POST", f"{path}/{made['id']}:{verb}", body)
