"""Commands over the API on a real service: reads of now and of the past, and changes."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from tests.support.commands import run_here as run
from tests.support.stores import kafka_writes
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from kazoo.client import KazooClient

    from tests.support.service import Service

pytestmark = pytest.mark.usefixtures("command_environment")

QUOTA: Final = "producer_byte_rate"


@pytest.fixture(scope="module", autouse=True)
def _recorded(service: Service) -> None:
    """Begin when the trail knows every write, so that the past can be read."""
    service.wait_recorded()


def shown(*arguments: str) -> list[list[str]]:
    """Return the cells of a table's rows, its header without the underline left out."""
    said = run(*arguments)
    assert (said.code, said.err) == (0, "")
    return [line.split() for line in said.out.splitlines()[1:]]


def items(*arguments: str) -> list[dict[str, Any]]:
    """Return the objects that a command prints with --json."""
    said = run(*arguments, "--json")
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


def configs(line: str) -> None:
    assert run("configs", *line.split()).code == 0


def test_the_list_of_what_is_not_applied_has_client_configs_that_clients_do_not_run_with(service: Service) -> None:
    url = f"{service.url}/v1/clusters/default/client-configs/user=unapplied"
    headers = {"Authorization": f"Bearer {service.token}"}

    def report(revision: str) -> None:
        body = {"softwareName": "s", "softwareVersion": "1", "appliedRevision": revision}
        httpx.put(f"{url}/instances/one", json=body, headers=headers).raise_for_status()

    configs("--alter --user unapplied --add-config producer_byte_rate=1024,acks=all")
    assert shown("get", "--not-applied", "--user", "unapplied") == []
    report("1")
    assert shown("get", "--not-applied", "--user", "unapplied") == [["user=unapplied", "acks", "all"]]
    assert items("get", "--not-applied", "--user", "unapplied", "--key", "acks") == [
        {"id": "user=unapplied", "client-configs": {"acks": "all"}}
    ]
    report(httpx.get(url, headers=headers).headers["Confplane-Revision"])
    assert shown("get", "--not-applied", "--user", "unapplied") == []


def test_lists_have_entities_of_all_facets_as_the_options_select_them() -> None:
    configs("--alter --user lists --add-config producer_byte_rate=1024,acks=all")
    configs("--alter --user lists --client lists-app --add-config session.timeout.ms=11000")
    configs("--alter --topic lists --add-config retention.ms=1000,cleanup.policy=compact")
    everything = [row for row in shown("get") if "lists" in row[0]]
    assert everything == [
        ["topic=lists", "cleanup.policy", "compact"],
        ["topic=lists", "retention.ms", "1000"],
        ["user=lists", QUOTA, "1024"],
        ["user=lists", "acks", "all"],
        ["user=lists,client-id=lists-app", "session.timeout.ms", "11000"],
    ]
    assert [row for row in shown("get", "--type", "topic") if "lists" in row[0]] == everything[:2]
    assert shown("get", "--user", "lists", "--key", "acks") == [everything[3]]
    assert shown("get", "--type", "user,client-id", "--client-id", "lists-app") == [everything[4]]
    assert items("get", "--user", "lists", "--type", "user") == [
        {"id": "user=lists", "client-quotas": {QUOTA: 1024}, "client-configs": {"acks": "all"}}
    ]


def test_content_history_and_differences_of_the_past() -> None:
    for value in ("1024", "2048"):
        configs(f"--alter --user past --add-config producer_byte_rate={value},acks=all")
    configs("--alter --user past --delete-config acks")
    removed, both, first = items("history", "user=past")
    assert [len(each["changes"]) for each in (removed, both, first)] == [1, 1, 2]
    assert items("history", "user=past", "--limit", "1") == [removed]
    begin = str(first["revision"])
    assert shown("get", "user=past") == [[QUOTA, "2048"]]
    assert shown("get", "user=past", "--at", begin) == [[QUOTA, "1024"], ["acks", "all"]]
    assert run("get", "user=past", "--at", "1h").code == 1
    assert shown("diff", "user=past", "--from", begin) == [[QUOTA, "1024", "2048"], ["acks", "all", "(not", "set)"]]
    assert shown("diff", "user=past", "--from", begin, "--to", str(both["revision"])) == [[QUOTA, "1024", "2048"]]
    same = run("diff", "user=past", "--from", begin, "--to", begin)
    assert (same.code, same.out) == (0, "")
    assert f"no difference between {begin} and {begin}" in same.err
    by = shown("history", "user=past")
    assert [row[1:3] for row in by if len(row) > 5][-1] == [begin, "User:admin"]


def test_an_external_change_is_marked(zk: KazooClient) -> None:
    kafka_writes(zk, "users/outside", json.dumps({"version": 1, "config": {QUOTA: "4096"}}).encode())
    out = wait_for(lambda: run("history", "user=outside").out)
    assert "(external)" in out
    assert "4096" in out


def test_values_in_effect_and_their_sources() -> None:
    configs("--alter --user levels --add-config producer_byte_rate=1024,acks=all")
    configs("--alter --topic levels --add-config retention.ms=1000")
    assert shown("effective", "user=levels,client-id=app") == [
        [QUOTA, "1024", "user=levels"],
        ["acks", "all", "user=levels"],
    ]
    assert shown("effective", "topic=levels") == [["retention.ms", "1000", "DYNAMIC_TOPIC_CONFIG"]]
    assert shown("effective", "topic=levels", "--key", "cleanup.policy") == [
        ["cleanup.policy", "delete", "DEFAULT_CONFIG"]
    ]
    assert len(shown("effective", "topic=levels", "--all")) > 20
    (found,) = items("effective", "user=levels")
    assert set(found) == {"id", "client-quotas", "client-configs"}


def test_set_and_delete_show_what_they_change() -> None:
    done = run(
        "set", "user=changed", f"{QUOTA}=9007199254740993", "acks=all", "--reason", "more load", "--ticket", "T-1"
    )
    assert [line.split() for line in done.out.splitlines()[1:]] == [
        [QUOTA, "(not", "set)", "9007199254740993"],
        ["acks", "(not", "set)", "all"],
    ]
    (change,) = items("history", "user=changed")
    assert (change["reason"], change["ticket"]) == ("more load", "T-1")
    assert done.err == f"Changed user=changed: revision {change['revision']}, change {change['changeId']}\n"
    again = run("set", "user=changed", "acks=all")
    assert (again.code, again.out) == (0, "")
    assert "already has these values" in again.err
    tried = run("delete", "user=changed", "acks", "--validate-only")
    assert tried.err == "Valid; nothing was written\n"
    assert tried.out.splitlines()[1].split() == ["acks", "all", "(not", "set)"]
    assert run("delete", "user=changed", "acks").code == 0
    assert shown("get", "user=changed") == [[QUOTA, "9007199254740993"]]
    assert run("delete", "user=changed", "--all").code == 0
    assert run("get", "user=changed").code == 1


def test_configs_of_topics_and_brokers_are_set_and_deleted() -> None:
    assert run("set", "topic=changed", "retention.ms=1000", "cleanup.policy=compact,delete").code == 0
    assert run("delete", "topic=changed", "retention.ms").code == 0
    assert shown("get", "topic=changed") == [["cleanup.policy", "compact,delete"]]
    assert run("set", "broker", "message.max.bytes=2000000").code == 0
    assert shown("get", "broker") == [["message.max.bytes", "2000000"]]
    assert run("delete", "broker", "--all").code == 0


def test_a_change_with_an_etag_is_made_only_on_what_was_read() -> None:
    assert run("set", "user=tagged", f"{QUOTA}=1", "acks=all").code == 0
    (read,) = items("get", "user=tagged")
    etags = ["--quotas-etag", read["etags"]["client-quotas"], "--configs-etag", read["etags"]["client-configs"]]
    assert run("set", "user=tagged", f"{QUOTA}=2", "acks=1", *etags).code == 0
    late = run("set", "user=tagged", f"{QUOTA}=3", "acks=0", *etags)
    assert (late.code, late.out) == (1, "")
    assert shown("get", "user=tagged") == [[QUOTA, "2"], ["acks", "1"]]
    assert run("set", "topic=tagged", "retention.ms=1").code == 0
    (topic,) = items("get", "topic=tagged")
    assert run("set", "topic=tagged", "retention.ms=2", "--configs-etag", topic["etags"]["configs"]).code == 0
    assert run("set", "topic=tagged", "retention.ms=3", "--configs-etag", topic["etags"]["configs"]).code == 1


def test_the_trail_is_searched_and_a_change_is_shown() -> None:
    assert run("set", "user=audited", f"{QUOTA}=1", "acks=all", "--reason", "more load").code == 0
    assert run("set", "user=audited", "acks=7").code == 1
    assert run("set", "topic=audited", "retention.ms=1").code == 0
    (change,) = items("audit", "--entity", "user=audited", "--outcome", "committed", "--since", "1h")
    assert (change["principal"], change["reason"]) == ("User:admin", "more load")
    by_key = items("audit", "--key", "retention.ms", "--principal", "User:admin", "--limit", "1")
    assert [each["entities"][0]["id"] for each in by_key] == ["topic=audited"]
    (row,) = shown("audit", "--entity", "user=audited", "--outcome", "committed")
    assert row[:2] == [change["committedAt"], change["revision"]]
    assert {"User:admin", "user=audited", "committed", "load", change["changeId"]} <= set(row)
    assert items("audit", change["changeId"]) == [change]
    single = run("audit", change["changeId"])
    facts = [line.split(maxsplit=1) for line in single.out.splitlines()]
    assert ["reason", "more load"] in facts
    assert ["revision", change["revision"]] in facts
    assert [each.split() for each in single.out.splitlines()[-2:]] == [
        ["user=audited", QUOTA, "(not", "set)", "1"],
        ["user=audited", "acks", "(not", "set)", "all"],
    ]
    none = run("audit", "--principal", "User:nobody")
    assert (none.code, none.out) == (0, "")
    assert "no such change" in none.err


def test_the_caller_and_the_clusters(service: Service) -> None:
    facts = [re.split(r"  +", line) for line in run("whoami").out.splitlines()]
    assert ["principal", "User:admin"] in facts
    assert ["service", service.url] in facts
    assert ["token from", f"the file {os.environ['CONFPLANE_TOKEN_FILE']}"] in facts
    assert service.token not in str(facts)
    assert [each["principal"] for each in items("whoami")] == ["User:admin"]
    assert [row[:2] for row in shown("clusters")] == [["default", "fresh"]]
    assert [each["name"] for each in items("clusters")] == ["default"]


def test_the_grants_and_limits_of_a_token_are_shown(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {service.token}"}, trust_env=False) as admin:
        grant = {"principal": "User:olga", "role": "viewer", "cluster": "default"}
        answer = admin.post(f"{service.url}/v1/grants", json=grant)
        assert answer.status_code == 201, answer.text
        token = {"principal": "User:olga", "narrowing": {"readOnly": True}}
        made = admin.post(f"{service.url}/v1/tokens", json=token)
        assert made.status_code == 201, made.text
    (tmp_path / "olga").write_text(made.json()["token"])
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", str(tmp_path / "olga"))
    wait_for(lambda: "viewer" in run("whoami").out)
    said = run("whoami").out
    assert "only reads" in said
    assert "User:olga  allow       the role viewer  all of the role  default" in said
    refused = run("set", "user=olga", "acks=all")
    assert refused.code == 1
    assert "`confplane whoami` shows your grants" in refused.err


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("set user=refused acks=7", 1, "acks"),
        ("set client-id=refused acks=all", 2, "clients have only quotas; client configs require a user"),
        ("set user=refused producer_byte_rate=much", 2, "The value of producer_byte_rate is not a number: 'much'"),
        ("set topic=refused no.such=1", 1, "no.such"),
        ("set user=refused acks=all,1 acks=1", 2, "acks is given twice"),
        ("delete user=refused acks", 2, "These keys are not set: acks."),
        ("delete user=refused --all", 2, "Nothing is set on user=refused"),
        ("delete user=refused", 2, "--all"),
        ("delete user=refused acks --all", 2, "--all"),
    ],
)
def test_refused_changes_change_nothing(line: str, code: int, said: str) -> None:
    found = run(*line.split())
    assert (found.code, found.out) == (code, "")
    assert said in found.err
    assert run("get", line.split()[1]).code == 1


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("get user=nobody", 1, "Nothing is set on user=nobody"),
        ("get user=alice --type topic", 2, "Omit ENTITY"),
        ("get user=alice --not-applied", 2, "Omit ENTITY"),
        ("get --not-applied --type topic", 2, "No entity is of the types topic at once and has client configs"),
        ("get --not-applied --at 1h", 2, "only known for the present"),
        ("get --type topics", 2, "Unknown entity type 'topics'. Available: user;"),
        ("get user=alice --at yesterday", 2, "--at yesterday is not a valid moment. Use a revision"),
        ("get user=alice --at 1970-01-01T00:00:00Z", 1, "is complete from revision"),
        ("history user=nobody", 0, "The trail has no change of user=nobody"),
        ("history usr=alice", 2, "is not a valid entity"),
        ("diff user=alice", 64, "--from"),
        ("audit --since yesterday", 2, "--since yesterday is not a valid time"),
        ("audit --outcome lost", 1, "outcome"),
        ("audit 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10 --key acks", 2, "Omit the options of a search."),
        ("audit 019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10", 1, "019a9c5e"),
    ],
)
def test_what_can_not_be_shown_is_said(line: str, code: int, said: str) -> None:
    found = run(*line.split())
    assert (found.code, found.out) == (code, "")
    assert said in found.err
