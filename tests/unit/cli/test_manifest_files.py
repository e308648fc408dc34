"""Manifests in files: what is read, and each refusal with its file, line and column. No refusal shows a value."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from confplane.cli.remote.manifests import ManifestFiles
from confplane.domain.errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import Path

HEAD: Final = "apiVersion: confplane/v1\nkind: Configs\n"
LIST: Final = f"{HEAD}entities:\n"
TOPIC: Final = f"{LIST}- id: topic=a\n  configs:\n"
USER: Final = f"{LIST}- id: user=a\n"
BROKER: Final = f"{LIST}- id: broker=1\n  configs:\n    ssl.keystore.password: "
HIDDEN: Final = "hidden-value"
ROWS: Final = [
    # the document
    ("", 1, 1, "no content"),
    ("# nothing\n", 1, 1, "no content"),
    ("[]\n", 1, 1, "this is a list, as `confplane export` writes it"),
    ("text\n", 1, 1, "a map with the members"),
    ("kind: Configs\nentities: []\n", 1, 1, "apiVersion is missing"),
    ("apiVersion: confplane/v1\nentities: []\n", 1, 1, "kind is missing"),
    ("apiVersion: confplane/v2\nkind: Configs\nentities: []\n", 1, 1, "apiVersion of a manifest is confplane/v1"),
    ("apiVersion: 1\nkind: Configs\nentities: []\n", 1, 1, "confplane/v1"),
    ("apiVersion: confplane/v1\nkind: Topics\nentities: []\n", 2, 1, "kind of a manifest is Configs"),
    (HEAD, 1, 1, "entities is missing"),
    (f"{HEAD}entities:\n", 3, 10, "a value is missing"),
    (f"{HEAD}entities: null\n", 3, 1, "entities is a list"),
    (f"{HEAD}entities:\n  topic=a: {{}}\n", 3, 1, "entities is a list"),
    (f"{HEAD}entities: topic=a\n", 3, 1, "entities is a list"),
    (f"{HEAD}metadata: {{}}\nentities: []\n", 3, 1, "'metadata' is not a member"),
    (f"{HEAD}owner: 7\nentities: []\n", 3, 1, "owner is not text"),
    (f"{HEAD}owner: a b\nentities: []\n", 3, 1, "owner is not a name"),
    (f"{HEAD}owner: a\nlabels: [b]\nentities: []\n", 4, 1, "labels is a map"),
    (f"{HEAD}owner: a\nlabels: {{b: 7}}\nentities: []\n", 4, 10, "label b is not text"),
    (f"{HEAD}prune: true\nentities: []\n", 3, 1, "'prune' is not a member"),
    (f"{HEAD}cluster: 7\nentities: []\n", 3, 1, "cluster is not text"),
    (f"{HEAD}cluster: ''\nentities: []\n", 3, 1, "cluster is not text"),
    (f"{HEAD}cluster: null\nentities: []\n", 3, 1, "cluster is not text"),
    (f"{HEAD}entities: []\nkind: Configs\n", 4, 1, "occurs twice"),
    # entities
    (f"{LIST}- topic=a\n", 4, 3, "an entity is a map"),
    (f"{LIST}- []\n", 4, 3, "an entity is a map"),
    (f"{LIST}- configs: {{}}\n", 4, 3, "an entity has an id"),
    (f"{LIST}- id: 7\n", 4, 3, "an entity has an id"),
    (f"{LIST}- id: acl=a\n  configs: {{}}\n", 4, 3, "not an entity id"),
    (f"{LIST}- id: user=a b\n  quotas: {{}}\n", 4, 3, "user=a~20b"),
    (f"{LIST}- id: topic\n  configs: {{}}\n", 4, 3, "Default topic"),
    (f"{LIST}- id: broker=x\n  configs: {{}}\n", 4, 3, "legal broker name"),
    (f"{LIST}- id: ip=host\n  quotas: {{}}\n", 4, 3, "IPv4"),
    (f"{LIST}- id: topic=a\n", 4, 3, "has no keys"),
    (f"{TOPIC}    a: '1'\n- id: topic=a\n  configs: {{}}\n", 7, 3, "topic=a occurs twice: here, and in m.yaml, line 4"),
    (f"{LIST}- id: topic=a\n  settings: {{}}\n", 5, 3, "'settings' is not a member of an entity"),
    (f"{LIST}- id: topic=a\n  configs: []\n", 5, 3, "configs is a map"),
    (f"{LIST}- id: topic=a\n  configs: null\n", 5, 3, "configs is a map"),
    (f"{LIST}- id: topic=a\n  configs:\n", 5, 11, "a value is missing"),
    (f"{USER}  quotas: 7\n", 5, 3, "quotas is a map"),
    # values
    (f"{TOPIC}    retention.ms: 1\n", 6, 5, "the value of retention.ms is not text"),
    (f"{TOPIC}    retention.ms: true\n", 6, 5, "is not text"),
    (f"{TOPIC}    retention.ms: null\n", 6, 5, "can't be null"),
    (f"{TOPIC}    retention.ms: ['1']\n", 6, 5, "is not text"),
    (f"{TOPIC}    a: '1'\n    a: '2'\n", 7, 5, "occurs twice"),
    (f"{USER}  quotas:\n    producer_byte_rate: '1'\n", 6, 5, "is not a number"),
    (f"{USER}  quotas:\n    producer_byte_rate: null\n", 6, 5, "is not a number"),
    (f"{USER}  quotas:\n    producer_byte_rate: true\n", 6, 5, "is not a number"),
    (f"{USER}  clientConfigs:\n    acks: 1\n", 6, 5, "is not text"),
    (f"{USER}  clientConfigs:\n    acks: null\n", 6, 5, "can't be null"),
    # secrets
    (f"{TOPIC}    retention.ms: {{fromEnv: CI_A}}\n", 6, 5, "not a secret"),
    (f"{USER}  clientConfigs:\n    acks: {{fromFile: a}}\n", 6, 5, "not a secret"),
    (f"{USER}  quotas:\n    producer_byte_rate: {{fromFile: a}}\n", 6, 5, "not a secret"),
    (f"{BROKER}{{fromVault: a}}\n", 6, 5, "fromFile or fromEnv"),
    (f"{BROKER}{{}}\n", 6, 5, "fromFile or fromEnv"),
    (f"{BROKER}{{fromFile: a, fromEnv: CI_A}}\n", 6, 5, "fromFile or fromEnv"),
    (f"{BROKER}{{fromFile: 7}}\n", 6, 29, "fromFile is not text"),
    (f"{BROKER}{{fromFile: ''}}\n", 6, 29, "fromFile is not text"),
    (f"{BROKER}{{fromFile: absent}}\n", 6, 29, "can't be read: No such file"),
    (f"{BROKER}{{fromFile: .}}\n", 6, 29, "can't be read: Is a directory"),
    (f"{BROKER}{{fromFile: ../outside}}\n", 6, 29, "leads out of the folder"),
    (f"{BROKER}{{fromFile: /etc/hostname}}\n", 6, 29, "leads out of the folder"),
    (f"{BROKER}{{fromFile: link}}\n", 6, 29, "leads out of the folder"),
    (f"{BROKER}{{fromFile: linked/outside}}\n", 6, 29, "leads out of the folder"),
    (f"{BROKER}{{fromFile: binary}}\n", 6, 29, "not UTF-8"),
    (f'{BROKER}{{fromFile: "a\\0b"}}\n', 6, 29, "not a valid path"),
    (f"{BROKER}{{fromEnv: OTHER}}\n", 6, 29, "does not begin with CI_"),
    (f"{BROKER}{{fromEnv: CI_ABSENT}}\n", 6, 29, "CI_ABSENT is not set"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for manifests, in another one with a file that no manifest may read."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    (tmp_path / "outside").write_text(HIDDEN)
    (folder / "link").symlink_to("../outside")
    (folder / "linked").symlink_to("..")
    (folder / "binary").write_bytes(b"\xff\xfe")
    monkeypatch.setenv("OTHER", HIDDEN)
    monkeypatch.chdir(folder)
    return folder


def read(path: str, env_prefix: str | None = None) -> ManifestFiles:
    from pathlib import Path  # noqa: PLC0415 - type checkers alone need it above

    files = ManifestFiles(Path(path), env_prefix)
    files.read()
    return files


@pytest.mark.parametrize(("text", "line", "column", "words"), ROWS)
def test_a_refusal_has_its_place(folder: Path, text: str, line: int, column: int, words: str) -> None:
    (folder / "m.yaml").write_text(text)
    with pytest.raises(InvalidRequestError) as refused:
        read("m.yaml", "CI_")
    message = str(refused.value)
    assert message.startswith(f"m.yaml, line {line}, column {column}: "), message
    assert words in message
    assert HIDDEN not in message


def test_no_variable_is_read_without_the_option(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "m.yaml").write_text(f"{BROKER}{{fromEnv: OTHER}}\n")
    for none in (None, ""):
        with pytest.raises(InvalidRequestError, match="needs the option --env-prefix"):
            read("m.yaml", none)
    monkeypatch.setenv("CI_A", "")
    (folder / "m.yaml").write_text(f"{BROKER}{{fromEnv: CI_A}}\n")
    assert read("m.yaml", "CI_").entities[0]["configs"] == {"ssl.keystore.password": ""}


@pytest.mark.parametrize(
    ("stored", "value"), [("a\n", "a"), ("a\r\n", "a"), ("a", "a"), ("a\n\n", "a\n"), (" a ", " a ")]
)
def test_a_secret_of_a_file_has_all_but_the_last_line_end(folder: Path, stored: str, value: str) -> None:
    (folder / "sub").mkdir()
    (folder / "secret").write_bytes(stored.encode())
    (folder / "sub" / "m.yaml").write_text(f"{BROKER}{{fromFile: ../secret}}\n")
    assert read(".").entities[0]["configs"] == {"ssl.keystore.password": value}
    with pytest.raises(InvalidRequestError, match="leads out of the folder"):
        read("sub/m.yaml")


def test_files_of_a_directory_are_one_manifest(folder: Path) -> None:
    (folder / "b").mkdir()
    (folder / ".git").mkdir()
    (folder / ".git" / "x.yaml").write_text("no manifest")
    (folder / "b" / "c.yml").write_text(f"{HEAD}cluster: payments\nentities: []\n")
    (folder / "a.yaml").write_text(f"{USER}  quotas: {{producer_byte_rate: 1.5}}\n")
    document = {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "entities": [{"id": "topic=a", "configs": {"a~/b": "1"}}],
    }
    (folder / "b" / "a.json").write_text(json.dumps(document))
    found = read(".")
    assert found.document == {
        "apiVersion": "confplane/v1",
        "kind": "Configs",
        "cluster": "payments",
        "entities": [{"id": "user=a", "quotas": {"producer_byte_rate": 1.5}}, *document["entities"]],
    }
    assert found.place("/entities/0/quotas/producer_byte_rate") == "a.yaml, line 5, column 12"
    assert found.place("/entities/1/configs/a~0~1b").startswith("b/a.json, line 1, ")
    assert found.place("/entities/1/configs/other") == found.place("/entities/1/configs")
    assert found.place("/scope") == ""


def test_two_files_that_contradict_each_other_are_refused_with_both_places(folder: Path) -> None:
    (folder / "a.yaml").write_text(f"{USER}  quotas: {{}}\n")
    (folder / "b.yaml").write_text(f"{USER}  clientConfigs: {{}}\n")
    with pytest.raises(InvalidRequestError) as refused:
        read(".")
    assert str(refused.value) == (
        "b.yaml, line 4, column 3: user=a occurs twice: here, and in a.yaml, line 4, column 3. Join both."
    )
    (folder / "a.yaml").write_text(f"{HEAD}cluster: one\nentities: []\n")
    (folder / "b.yaml").write_text(f"{HEAD}cluster: two\nentities: []\n")
    with pytest.raises(InvalidRequestError, match=r"b\.yaml, line 3, column 1: .* a\.yaml, line 3, column 1"):
        read(".")


def test_what_can_not_be_read_is_refused(folder: Path) -> None:
    for path, words in (("absent.yaml", "absent.yaml can't be read"), ("linked/manifests/b", "can't be read")):
        with pytest.raises(InvalidRequestError, match=words):
            read(path)
    (folder / "empty").mkdir()
    with pytest.raises(InvalidRequestError, match="empty has no files that end with"):
        read("empty")


def test_a_link_without_its_file_is_refused(folder: Path) -> None:
    (folder / "a.yaml").write_text(f"{HEAD}entities: []\n")
    (folder / "b.yaml").symlink_to("absent")
    with pytest.raises(InvalidRequestError, match=r"b\.yaml can't be read: No such file"):
        read(".")


def test_a_folder_that_can_not_be_listed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a.yaml").write_text(f"{HEAD}entities: []\n")
    (folder / "closed").mkdir()
    listed = os.scandir

    def refuse(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InvalidRequestError, match="closed can't be read: Permission denied"):
        read(".")
