from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from confplane.cli.commands import cli
from confplane.cli.remote import profiles
from confplane.cli.remote.credentials import tls_of, token_of, tokens_of
from confplane.cli.remote.profiles import Profile, ProfileError, Profiles
from confplane.client import AsyncConfplane, ProblemError
from confplane.domain.base64url import encode_base64url

FILE = """\
current: first
profiles:
  first:
    url: http://first
    cluster: payments
    token_file: {token}
  second:
    url: http://second
    token_command: [{python}, -c, "print('from-a-command')"]
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and a file of two profiles."""
    for name in ("PROFILE", "URL", "CLUSTER", "TOKEN_FILE", "TOKEN"):
        monkeypatch.delenv(f"CONFPLANE_{name}", raising=False)
    (tmp_path / "token").write_text("from-a-file\n")
    (tmp_path / "profiles.yaml").write_text(FILE.format(token=tmp_path / "token", python=sys.executable))
    monkeypatch.setenv("CONFPLANE_PROFILES", str(tmp_path / "profiles.yaml"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_the_current_profile_counts_unless_another_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Profile("http://first", "payments", directory / "token")
    assert profiles.choose_profile(None, None) == first
    assert profiles.choose_profile("second", "other").cluster == "other"
    monkeypatch.setenv("CONFPLANE_PROFILE", "second")
    assert profiles.choose_profile(None, None).url == "http://second"
    assert profiles.choose_profile("first", None) == first
    monkeypatch.setenv("CONFPLANE_CLUSTER", "orders")
    assert profiles.choose_profile("first", None).cluster == "orders"


@pytest.mark.usefixtures("directory")
def test_a_url_of_the_environment_gets_no_token_of_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFPLANE_URL", "http://elsewhere")
    assert profiles.choose_profile(None, None) == Profile("http://elsewhere")
    assert profiles.choose_profile("first", None).url == "http://first"
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", "own-token")
    assert profiles.choose_profile(None, "a") == Profile("http://elsewhere", "a", Path("own-token"))


@pytest.mark.usefixtures("directory")
@pytest.mark.parametrize("profile", ["first", "second", None])
def test_a_token_of_the_environment_replaces_that_of_a_profile(
    monkeypatch: pytest.MonkeyPatch, profile: str | None
) -> None:
    monkeypatch.setenv("CONFPLANE_TOKEN", "from-the-environment\n")
    chosen = profiles.choose_profile(profile, None)
    assert token_of(chosen) == "from-the-environment"
    assert (chosen.token_source, "from-the-environment" in repr(chosen)) == ("CONFPLANE_TOKEN", False)
    assert "from-the-environment" not in str(chosen.to_json())
    monkeypatch.setenv("CONFPLANE_TOKEN", "two words")
    with pytest.raises(ProfileError, match=r"^CONFPLANE_TOKEN gave no token") as raised:
        token_of(profiles.choose_profile(profile, None))
    assert "words" not in str(raised.value)
    monkeypatch.setenv("CONFPLANE_TOKEN_FILE", "own-token")
    with pytest.raises(ProfileError, match="CONFPLANE_TOKEN and CONFPLANE_TOKEN_FILE are both set"):
        profiles.choose_profile(profile, None)


def test_without_profiles_the_service_of_dev_counts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFPLANE_PROFILES", str(directory / "absent.yaml"))
    with pytest.raises(ProfileError, match=r"No service is named\. Set CONFPLANE_URL"):
        profiles.choose_profile(None, None)
    (directory / "here" / ".confplane").mkdir()
    (directory / "here" / ".confplane" / "endpoints.json").write_text('{"url": "http://127.0.0.1:8080"}')
    assert profiles.choose_profile(None, None) == Profile(
        "http://127.0.0.1:8080", token_file=Path(".confplane") / "admin-token"
    )


_PROGRAM = """\
import pathlib, sys
tokens = pathlib.Path(sys.argv[1]).read_text().split()
print(tokens[0])
pathlib.Path(sys.argv[1]).write_text(" ".join(tokens[1:]))
"""


def _token(claims: object) -> str:
    return f"header.{encode_base64url(json.dumps(claims).encode())}.signature"


@pytest.mark.parametrize("lasting", ["opaque", "a.b.c", _token([]), _token({"exp": None}), _token({"exp": 99e9})])
def test_a_token_command_runs_again_once_its_token_has_expired(tmp_path: Path, lasting: str) -> None:
    expired = _token({"exp": 1})
    (tmp_path / "tokens").write_text(f"{expired} {expired} {lasting} unused")
    command = (sys.executable, "-c", _PROGRAM, str(tmp_path / "tokens"))
    current = tokens_of(Profile("http://x", token_command=command))
    assert callable(current)
    assert [current() for _ in range(4)] == [expired, lasting, lasting, lasting]


@pytest.mark.parametrize(
    ("printed", "left", "sent"),
    [
        ("old new unused", "unused", ["old", "old", "new", "new"]),
        ("old old unused", "unused", ["old", "old"]),
        ("old", "", ["old", "old"]),
    ],
    ids=["another token", "the same token", "no token"],
)
async def test_a_token_command_runs_again_once_for_all_requests_that_are_refused(
    tmp_path: Path, printed: str, left: str, sent: list[str]
) -> None:
    (tmp_path / "tokens").write_text(printed)
    command = (sys.executable, "-c", _PROGRAM, str(tmp_path / "tokens"))
    seen: list[str] = []

    both_are_sent = asyncio.Event()

    async def answer(request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        seen.append(token)
        if token == "old":
            if seen.count(token) == 2:
                both_are_sent.set()
            await both_are_sent.wait()
        return httpx.Response(401 if token == "old" else 200, json={"title": "Unauthenticated"})

    tokens = tokens_of(Profile("http://x", token_command=command))
    async with AsyncConfplane("http://x", token=tokens, transport=httpx.MockTransport(answer)) as client:
        reads = [client.client_quotas.get(f"user={name}") for name in "ab"]
        answers = await asyncio.gather(*reads, return_exceptions=True)
    assert [isinstance(each, ProblemError) for each in answers] == ["new" not in printed] * 2
    assert (sorted(seen, reverse=True), (tmp_path / "tokens").read_text()) == (sent, left)


def test_tokens_of_files_and_commands(directory: Path) -> None:
    assert token_of(profiles.choose_profile("first", None)) == "from-a-file"
    assert token_of(profiles.choose_profile("second", None)) == "from-a-command"
    assert token_of(Profile("http://x")) is None
    (directory / "token").write_text("two words")
    for broken in (
        Profile("http://x", token_file=directory / "absent"),
        Profile("http://x", token_file=directory / "token"),
        Profile("http://x", token_command=(sys.executable, "-c", "print('geheim'); raise SystemExit(3)")),
        Profile("http://x", token_command=(sys.executable, "-c", "print('geheim' + chr(7))")),
        Profile("http://x", token_command=("/nowhere/program",)),
    ):
        with pytest.raises(ProfileError) as raised:
            token_of(broken)
        assert "geheim" not in str(raised.value)
        assert "two words" not in str(raised.value)


def test_files_of_tls(directory: Path) -> None:
    assert tls_of(Profile("http://x")) is True
    with pytest.raises(ProfileError, match="TLS"):
        tls_of(Profile("http://x", ca_file=directory / "token"))


def test_what_is_written_is_read() -> None:
    written = Profiles("a", {"a": Profile("http://a", token_file=Path("/t")), "b": Profile("http://b", "c")})
    written.write()
    assert Profiles.read() == written


@pytest.fixture(autouse=True)
def _own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONFPLANE_PROFILES", str(tmp_path / "deep" / "profiles.yaml"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "line 2, column 1: did not find"),
        ("profiles:\n  a: {url: 'http://a'}\n  a: {url: 'http://b'}", "line 3, column 3: the key 'a' occurs twice"),
        ("[]", "other members"),
        ("profils: {}", "other members"),
        ("profiles: {a: {}}", "profiles.a has no url"),
        ("profiles: {a: {url: x, token: geheim}}", "unknown members token"),
        ("profiles: {a: {url: x, token_command: geheim}}", "token_command is not a list"),
        ("profiles: {a: {url: x, token_command: [a], token_file: b}}", "both"),
        ("profiles: {a: {url: x, client_id: c, token_file: b}}", "has both token_file and client_id"),
        ("profiles: {a: {url: x, scope: [geheim]}}", "scope is not a text"),
        ("current: a\nprofiles: {a: {url: localhost:8080}}", "is not a valid service URL"),
        ("current: b", "no profile 'b'"),
    ],
)
def test_wrong_files_are_named(content: str, said: str) -> None:
    profiles.file().parent.mkdir()
    profiles.file().write_text(content)
    with pytest.raises(ProfileError, match=said) as raised:
        profiles.choose_profile(None, None)
    assert "geheim" not in str(raised.value)
    assert str(profiles.file()) in str(raised.value)


def run(*arguments: str) -> tuple[int, str]:
    answer = CliRunner().invoke(cli, ["profiles", *arguments], env={"COLUMNS": "200"})
    return answer.exit_code, answer.output


def test_profiles_by_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no profile" in run("list")[1]
    assert run("set", "a", "--url", "https://a", "--token-file", "token")[0] == 0
    assert run("set", "b", "--url", "http://b", "--cluster", "c", "--token-command", "get 'a token'")[0] == 0
    a = Profile("https://a", token_file=tmp_path / "token")
    b = Profile("http://b", "c", token_command=("get", "a token"))
    assert Profiles.read() == Profiles("a", {"a": a, "b": b})
    lines = run("list")[1].splitlines()
    assert [line.split()[:2] for line in lines if "http" in line] == [["a", "*"], ["b", "http://b"]]
    assert run("use", "b")[0] == 0
    assert Profiles.read().current == "b"
    assert run("remove", "b")[0] == 0
    assert Profiles.read() == Profiles(None, {"a": a})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["use", "absent"], "There is no profile 'absent'"),
        (["remove", "absent"], "There is no profile 'absent'"),
        (["set", "a", "--url", "localhost:8080"], "is not a valid service URL"),
        (["set", "a", "--url", "http://a", "--token-file", "t", "--token-command", "c"], "Give one of"),
        (["set", "a", "--url", "http://a", "--token-file", "t", "--client-id", "c"], "Give one of"),
        (["set", "a", "--url", "http://a", "--token-command", "'"], "can't be read"),
        (["set", "a", "--url", "http://a", "--token-command", ""], "empty"),
    ],
)
def test_wrong_commands_change_nothing(arguments: list[str], said: str) -> None:
    code, output = run(*arguments)
    assert code == 2
    assert said in output
    assert not profiles.file().exists()


def test_profiles_are_listed_for_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONFPLANE_PROFILES", str(tmp_path / "profiles.yaml"))
    for name in ("one", "two"):
        CliRunner().invoke(cli, ["profiles", "set", name, "--url", f"http://{name}", "--token-file", "/t"])
    said = CliRunner().invoke(cli, ["profiles", "list", "--json"]).stdout
    assert [json.loads(line) for line in said.splitlines()] == [
        {
            "name": name,
            "url": f"http://{name}",
            "cluster": "default",
            "tokenSource": "the file /t",
            "current": name == "one",
        }
        for name in ("one", "two")
    ]
