"""Exports of a service that fails meanwhile, or has very many entities; tests/integration exports a real one."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote import session
from confplane.client import AsyncConfplane

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confplane.cli.remote.profiles import Profile

    Answering = Callable[[Callable[[httpx.Request], "Answer"]], None]

Answer = httpx.Response | Exception
_TRIES: Final = 4


def page(*users: str, after: str | None = None) -> httpx.Response:
    items = [{"id": f"user={user}", "quotas": {"producer_byte_rate": 1}} for user in users]
    return httpx.Response(200, json={"items": items, "nextPageToken": after, "skipped": []})


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Answering:
    """Lets exports have made-up answers; exceptions are raised. No pause takes time."""

    async def at_once(seconds: float) -> None:
        del seconds

    def use(answer: Callable[[httpx.Request], Answer]) -> None:
        def sent(request: httpx.Request) -> httpx.Response:
            made = answer(request)
            if isinstance(made, Exception):
                raise made
            return made

        def client(profile: Profile) -> AsyncConfplane:
            return AsyncConfplane(profile.url, token=None, tries=_TRIES, transport=httpx.MockTransport(sent))

        monkeypatch.setattr(session, "client_of", client)

    monkeypatch.setenv("CONFPLANE_URL", "http://confplane.test")
    monkeypatch.setattr(asyncio, "sleep", at_once)
    return use


def of_quotas(*answers: Answer) -> Callable[[httpx.Request], Answer]:
    """Answers to the list of quotas, one after another, the last again and again; the other lists are empty."""
    left = list(answers)

    def answer(request: httpx.Request) -> Answer:
        if not request.url.path.endswith("/client-quotas"):
            return page()
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


def test_a_page_whose_answer_is_lost_is_asked_for_again(answering: Answering) -> None:
    lost = httpx.ReadError("cut")
    answering(of_quotas(page("a", after="a"), lost, httpx.Response(503, json={"retriable": True}), page("b")))
    said = CliRunner().invoke(cli, ["export", "--type", "user"])
    assert said.exit_code == 0
    assert [line for line in said.stdout.splitlines() if line.startswith("- id")] == ["- id: user=a", "- id: user=b"]


@pytest.mark.parametrize(
    ("away", "reason"),
    [
        (httpx.ConnectError("refused"), "The service did not answer"),
        (httpx.Response(403, json={"detail": "No grant"}), "No grant"),
    ],
)
@pytest.mark.parametrize("earlier", [None, "an earlier export"])
def test_a_service_that_is_away_midway_leaves_no_half_file(
    answering: Answering, tmp_path: Path, away: Answer, reason: str, earlier: str | None
) -> None:
    file = tmp_path / "all.yaml"
    if earlier is not None:
        file.write_text(earlier)
    answering(of_quotas(page("a", after="a"), away))
    said = CliRunner().invoke(cli, ["export", "--output", str(file)])
    assert said.exit_code == 1
    assert reason in said.stderr
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == (
        {} if earlier is None else {"all.yaml": earlier}
    )


@pytest.mark.long
def test_fifty_thousand_entities_need_the_memory_of_a_few_pages(answering: Answering, tmp_path: Path) -> None:
    entities, size = 50_000, 1_000
    file = tmp_path / "all.yaml"

    def listed(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/client-quotas"):
            return page()
        start = int(request.url.params.get("pageToken", 0))
        after = start + size
        names = [f"{number:06}{'n' * 200}" for number in range(start, after)]
        return page(*names, after=None if after == entities else str(after))

    answering(listed)
    tracemalloc.start()
    try:
        said: Any = CliRunner().invoke(cli, ["export", "--output", str(file)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert said.stderr == f"Exported entities to {file}: {entities}\n"
    assert file.stat().st_size > 10_000_000
    assert peak < 10_000_000
