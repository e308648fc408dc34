"""Answers of an issuer to the console, with and without the issuer's name (RFC 9207)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.console.sign_in_issuer import SignInIssuer
from tests.console.visitor import SIGN_IN, Visitor, continued
from tests.support.ports import reserved_port
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.service import Service


@pytest.fixture(scope="module", params=[True, False], ids=["names itself", "does not"])
def issuer(request: pytest.FixtureRequest) -> Iterator[SignInIssuer]:
    with SignInIssuer(names_itself=request.param) as made:
        yield made


@pytest.fixture(scope="module")
def service_options(issuer: SignInIssuer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The module's service, whose console has a client at the issuer."""
    port = reserved_port()
    return {"settings": issuer.settings_of_console(tmp_path_factory.mktemp("console"), port), "port": port}


@pytest.fixture
def back(service: Service, stranger: Visitor, issuer: SignInIssuer) -> httpx.URL:
    """The address to which the issuer sends the stranger's browser back."""
    wait_for(lambda: "has not reached this issuer" not in stranger.page(SIGN_IN), why=service.tail)
    led = stranger.post("/console/sign-in/issuer", {"issuer": issuer.url}, page=SIGN_IN)
    with httpx.Client(trust_env=False) as browser:
        login = browser.get(continued(led)).headers["location"]
        return httpx.URL(browser.get(login).headers["location"])


def test_an_answer_without_the_name_of_the_issuer_is_refused_if_it_gives_names(
    stranger: Visitor, back: httpx.URL, request: pytest.FixtureRequest
) -> None:
    names_itself = "names itself" in request.node.name
    answered = stranger.get(str(back.copy_remove_param("iss")))
    assert answered.status_code == (401 if names_itself else 303), answered.text
    assert (stranger.session is None) == names_itself


def test_an_answer_with_the_name_of_the_issuer_signs_in(stranger: Visitor, back: httpx.URL) -> None:
    assert stranger.get(str(back)).status_code == 303
    assert "User:test:olga" in stranger.page("/console/")
