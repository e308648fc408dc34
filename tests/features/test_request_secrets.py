"""Secrets of change requests: planted in proposals and in changes past the rules, and searched for in all outputs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

from confplane.client import AsyncConfplane, ProblemError
from tests.integration.test_webhooks import webhook_settings
from tests.support.feeding import page
from tests.support.planted import Planted
from tests.support.receiver import receiving
from tests.support.reviewers import PROPOSES, REVIEWS, token_of
from tests.support.service import Service
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers import Database

KEY: Final = "listener.name.external.ssl.key.password"
CUSTOM: Final = "my.plugin.token"
RULES: Final = """\
rules:
  - name: two-people
    match: {types: broker}
    approvals: {count: 1, from: "User:*"}
"""
FORMS: Final = ("slack", "teams", "cloudevents")


def edit(broker: int, **values: str) -> Any:
    ops = [{"op": "SET", "key": key, "value": value} for key, value in values.items()]
    return {"facet": "configs", "id": f"broker={broker}", "ops": ops}


def tables(dsn: str) -> dict[str, str]:
    """Return all rows of all tables."""
    found = {}
    with psycopg.connect(dsn) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        for (name,) in names:
            query = sql.SQL("SELECT to_jsonb(t)::text FROM {} t").format(sql.Identifier(name))
            found[name] = repr(connection.execute(query).fetchall())
    return found


async def test_secrets_of_requests_are_in_no_event_message_log_or_table(
    chroot: str, migrated: Database, tmp_path: Path
) -> None:
    (tmp_path / "policy.yaml").write_text(RULES)
    (tmp_path / "encoder").write_text("encoder")
    service = Service(
        tmp_path,
        cluster={
            "policy_file": str(tmp_path / "policy.yaml"),
            "password_encoder": {"secret_file": str(tmp_path / "encoder"), "iterations": 1024},
        },
        connect=chroot,
        dsn=migrated.service_dsn,
        settings=webhook_settings(tmp_path) | {"CONFPLANE_LOG_LEVEL": "debug"},
        module="tests.support.stepping",
    )
    planted = Planted()
    said: dict[str, str] = {}
    await asyncio.to_thread(service.start)
    try:
        tokens = [
            await asyncio.to_thread(token_of, service, *given)
            for given in (("dev", (*PROPOSES, *REVIEWS)), ("ops", REVIEWS), ("breaker", (*REVIEWS, "BYPASS_RULES")))
        ]
        async with (
            AsyncConfplane(service.url, token=tokens[0]) as dev,
            AsyncConfplane(service.url, token=tokens[1]) as ops,
            AsyncConfplane(service.url, token=tokens[2]) as breaker,
            AsyncConfplane(service.url, token=service.token) as admin,
            receiving() as receiver,
        ):
            for form in FORMS:
                wanted: Any = {
                    "url": receiver.url(f"/{form}"),
                    "format": form,
                    "filter": {"requests": "include"},
                }
                await admin.webhooks.put(f"all-{form}", wanted)
            position = (await page(service, requests="include")).json()["position"]
            requests = dev.change_requests
            secret = planted("proposed")
            made = (
                await requests.propose([edit(1, **{KEY: secret, CUSTOM: planted("custom, replaced")})], reason="more")
            ).body
            content = [edit(1, **{KEY: secret, CUSTOM: (custom := planted("custom, revised"))})]
            made = (await requests.revise(made["id"], content)).body
            await requests.comment(made["id"], "visible-comment")
            await ops.change_requests.approve(made["id"], made["digest"], comment="visible-approval")
            wrong: Any = [{"id": "broker=1", "key": key, "value": planted("wrong")} for key in (KEY, CUSTOM)]
            right: Any = [{"id": "broker=1", "key": KEY, "value": secret}, {**wrong[1], "value": custom}]
            for values in (wrong, right[:1]):
                with pytest.raises(ProblemError) as refused:
                    await requests.apply(made["id"], values)
                said[f"refusal of {len(values)} values"] = str(refused.value)
            await requests.apply(made["id"], right)
            document = {
                "apiVersion": "confplane/v1",
                "kind": "Configs",
                "entities": [{"id": "broker=2", "configs": {KEY: planted("manifest")}}],
            }
            manifest = (await dev.change_requests.propose(manifest=document)).body
            await ops.change_requests.reject(manifest["id"], "visible-rejection")
            await breaker.configs.put(
                "broker=3", {KEY: planted("past the rules")}, break_glass="visible-outage", reason="visible-outage"
            )
            [glass] = [each async for each in ops.change_requests.list(entity="broker=3")]
            await ops.change_requests.approve(glass["id"], glass["digest"], comment="visible-acknowledgement")

            def ended() -> bool:
                return all(
                    any(each.target == f"/{form}" and b"acknowledge" in each.body for each in receiver.requests)
                    for form in FORMS
                )

            await until(ended, why=lambda: str(receiver.requests))
            messages = [f"{each.target} {each.headers} {each.body!r}" for each in receiver.requests]
            said |= {f"message {number}": message for number, message in enumerate(messages)}
            said["feed"] = (await page(service, after=position, requests="include")).text
            said["requests"] = json.dumps([(await requests.get(each["id"])).body for each in (made, manifest, glass)])
            said["trail"] = json.dumps([each async for each in admin.audit.search()])
    finally:
        await asyncio.to_thread(service.stop)
    said["log"] = service.log.read_text()
    said |= {f"table {name}": rows for name, rows in tables(migrated.owner_dsn).items()}
    assert {where: leaks for where, text in said.items() if (leaks := planted.found_in(text))} == {}
    # What is no secret is found in the same places.
    assert "visible-outage" in said["feed"]
    assert "visible-comment" in said["requests"]
    assert "visible-outage" in said["trail"]
    assert KEY in said["table change_request_revisions"]
    for form in FORMS:
        assert any(message.startswith(f"/{form}") and "visible-" in message for message in messages), form
