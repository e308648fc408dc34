"""``confplane apply --propose``, from the manifest to the applied request and its revert, by two people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.commands import run_here
from tests.support.reviewers import PROPOSES, REVIEWS, token_of

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.support.service import Service

MANIFEST = """\
apiVersion: confplane/v1
kind: Configs
entities:
  - id: user=proposed-1
    quotas: {producer_byte_rate: 5}
  - id: user=proposed-2
    quotas: {request_percentage: 50}
    clientConfigs: {acks: all}
"""


def test_a_manifest_is_proposed_approved_applied_and_reverted(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFPLANE_URL", service.url)
    tokens = {"dev": token_of(service, "manifest-dev", PROPOSES), "ops": token_of(service, "manifest-ops", REVIEWS)}

    def run(who: str, *words: str) -> Any:
        monkeypatch.setenv("CONFPLANE_TOKEN", tokens[who])
        said = run_here(*words, "--json")
        assert said.code == 0, said
        return json.loads(said.out.splitlines()[-1])

    (tmp_path / "m.yaml").write_text(MANIFEST)
    made = run("dev", "apply", str(tmp_path / "m.yaml"), "--propose", "--yes", "--reason", "more load")
    assert made["entities"] == ["user=proposed-1", "user=proposed-2"]
    run("ops", "requests", "approve", made["id"], "--digest", made["digest"])
    applied = run("dev", "requests", "apply", made["id"])
    assert (applied["state"], applied["author"]["principal"]) == ("applied", "User:manifest-dev")
    monkeypatch.setenv("CONFPLANE_TOKEN", tokens["dev"])
    assert run_here("plan", str(tmp_path / "m.yaml")).code == 0, "nothing is left to change"
    revert = run("ops", "requests", "show", made["id"])
    assert revert["approvals"][0]["principal"] == "User:manifest-ops"
    back = run("dev", "requests", "revert", made["id"], "--reason", "harmful")
    run("ops", "requests", "approve", back["id"], "--digest", back["digest"])
    run("dev", "requests", "apply", back["id"])
    ended = run("dev", "requests", "show", made["id"])
    assert (ended["state"], ended["revertedBy"]) == ("reverted", back["id"])
    assert run_here("plan", str(tmp_path / "m.yaml")).code == 2, "everything is to be set again"
