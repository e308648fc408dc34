"""Tokens of logins: their files, and their renewal."""

from __future__ import annotations

import fcntl
import stat
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from confplane.cli.remote import completion, credentials, logins
from confplane.cli.remote.credentials import token_of
from confplane.cli.remote.logins import StoredLogin
from confplane.cli.remote.profiles import Profile, ProfileError
from confplane.client.device import LoginTokens
from confplane.client.tokens import authorization
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = Profile("https://confplane.test", client_id="people", name="work")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def login(lifetime_s: float | None, refresh: str | None = "r1") -> StoredLogin:
    """A login whose access token has so many seconds left."""
    expires_at = None if lifetime_s is None else time.time() + lifetime_s
    return StoredLogin(PROFILE.url, "people", "https://i", "https://i/token", None, None, "first", expires_at, refresh)


def test_a_login_is_for_its_owner_its_service_and_its_client_alone() -> None:
    logins.write(PROFILE, login(300))
    path = logins.file_of(PROFILE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert token_of(PROFILE) == "first"
    for other in (replace(PROFILE, url="https://other.test"), replace(PROFILE, client_id="other")):
        with pytest.raises(ProfileError, match=r"You are not logged in to .*confplane login --profile work"):
            token_of(other)
        logins.file_of(other).write_bytes(path.read_bytes())
        assert logins.read(other) is None
    logins.remove(PROFILE)
    assert logins.read(PROFILE) is None


def test_a_file_that_is_no_login_is_none() -> None:
    logins.write(PROFILE, login(300))
    for content in ("", "{", "[]", '{"url": 1}'):
        logins.file_of(PROFILE).write_text(content)
        assert logins.read(PROFILE) is None


@pytest.mark.parametrize("lifetime_s", [300, None])
def test_a_token_with_time_left_is_used_as_it_is(lifetime_s: float | None) -> None:
    logins.write(PROFILE, login(lifetime_s))
    assert logins.access_token(PROFILE, _never) == "first"


def _never(*_: object) -> LoginTokens:
    raise AssertionError("the token was renewed")


def test_a_token_near_its_end_is_renewed_once_by_all_who_want_it() -> None:
    logins.write(PROFILE, login(5))
    begun: list[None] = []
    asked: list[str] = []
    found: list[str] = []

    def renew(_: StoredLogin, refresh: str) -> LoginTokens:
        asked.append(refresh)
        wait_for(lambda: len(begun) == 8)
        return LoginTokens("second", time.time() + 300, "r2")

    def use() -> None:
        begun.append(None)
        found.append(logins.access_token(PROFILE, renew))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, asked) == (["second"] * 8, ["r1"])
    kept = logins.read(PROFILE)
    assert kept is not None
    assert kept.refresh == "r2"


def test_a_token_that_can_not_be_renewed_asks_for_a_login() -> None:
    logins.write(PROFILE, login(5, None))
    with pytest.raises(ProfileError, match="has ended: run `confplane login --profile work`"):
        logins.access_token(PROFILE, _never)


@pytest.mark.parametrize("after", [None, replace(login(300), access="another person's")])
def test_a_renewal_brings_no_earlier_login_back(after: StoredLogin | None, monkeypatch: pytest.MonkeyPatch) -> None:
    logins.write(PROFILE, login(5))
    lock = fcntl.flock
    locks: list[None] = []

    def locked(descriptor: int, operation: int) -> None:
        locks.append(None)
        lock(descriptor, operation)

    def end() -> None:
        if after is None:
            logins.remove(PROFILE)
        else:
            logins.write(PROFILE, after)

    ending = threading.Thread(target=end)

    def renew(*_: object) -> LoginTokens:
        ending.start()
        wait_for(lambda: len(locks) == 2 or not ending.is_alive())
        return LoginTokens("second", time.time() + 300, "r2")

    monkeypatch.setattr(fcntl, "flock", locked)
    assert logins.access_token(PROFILE, renew) == "second"
    ending.join()
    assert logins.read(PROFILE) == after


class _Renewal:
    """A lock that tells that a second thread waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.wanted = threading.Event()

    def acquire(self) -> None:
        self.wanted.set()
        self._lock.acquire()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_completion_that_gives_up_lets_a_renewed_token_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    logins.write(PROFILE, login(5))
    renewal = _Renewal()
    stored: list[StoredLogin | None] = []
    monkeypatch.setenv("CONFPLANE_URL", PROFILE.url)
    monkeypatch.setattr(logins, "RENEWAL", renewal)

    def complete() -> None:
        context: Any = SimpleNamespace(params={})
        assert completion.cluster_names(context, "") == []
        stored.append(logins.read(PROFILE))

    completing = threading.Thread(target=complete)

    def renew(*_: object) -> LoginTokens:
        wait_for(lambda: renewal.wanted.is_set() or not completing.is_alive())
        return LoginTokens("second", time.time() + 300, "r2")

    def renewed(_: Profile) -> str:
        logins.access_token(PROFILE, renew)
        raise ProfileError("nothing waits for the token any more")

    monkeypatch.setattr(credentials, "token_of", renewed)
    completing.start()
    completing.join()
    assert [each and each.refresh for each in stored] == ["r2"]


@pytest.mark.parametrize("source", ["login", "file"])
def test_a_command_that_runs_for_long_sends_renewed_tokens(tmp_path: Path, source: str) -> None:
    path = tmp_path / "token"
    profile = PROFILE if source == "login" else replace(PROFILE, client_id=None, token_file=path)

    def store(token: str) -> None:
        logins.write(PROFILE, replace(login(300), access=token))
        path.write_text(token)

    store("first")
    tokens = credentials.tokens_of(profile)
    assert tokens is not None
    assert authorization(tokens) == "Bearer first"
    store("second")
    assert authorization(tokens) == "Bearer second"


def test_a_command_whose_profile_has_no_token_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="You are not logged in"):
        credentials.tokens_of(PROFILE)
    with pytest.raises(ProfileError, match="can't be read: No such file"):
        credentials.tokens_of(replace(PROFILE, client_id=None, token_file=tmp_path / "none"))
    assert credentials.tokens_of(replace(PROFILE, client_id=None)) is None
