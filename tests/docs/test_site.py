"""The documentation site: it builds without warnings, its links lead somewhere, and every page can be found."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from confplane.settings import Settings
from confplane.telemetry import METRICS, PREFIX
from tests.docs import reference, site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENT = site.DOCS / "a.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the site."""
    made = tmp_path_factory.mktemp("docs") / "site"
    site.assemble(made)
    return made


@pytest.fixture(scope="module")
def built(folder: Path) -> Path:
    """The site, built without warnings."""
    done = site.build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_each_page_is_built_and_can_be_searched(folder: Path, built: Path) -> None:
    pages = {path.parent.name for path in built.glob("*/index.html")}
    assert {path.stem for path in (folder / "pages").glob("*.md")} - {"index"} <= pages
    found = (built / "search.json").read_text("utf-8")
    assert "confplane rollups run" in found


@pytest.mark.parametrize("link", ["kafka4.md#no-such-heading", "no-such-page.md"])
def test_the_build_sees_broken_links(tmp_path: Path, link: str) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "A"\ndocs_dir = "pages"\n')
    (pages / "kafka4.md").write_text("# A heading\n")
    (pages / "index.md").write_text(f"# First\n\n[a link]({link})\n")
    assert site.build(tmp_path).returncode != 0


def test_pages_load_nothing_from_other_servers(built: Path) -> None:
    pages = [path.read_text("utf-8") for path in built.rglob("*.html")]
    loaded = {
        url
        for page in pages
        for url in re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(https?://[^\s\">]+)", page)
    }
    assert loaded == set()


def _paths(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _paths(value)


def test_each_page_is_in_the_navigation_once(folder: Path) -> None:
    listed = [*_paths(tomllib.loads(site.CONFIG.read_text())["project"]["nav"])]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {path.name for path in (folder / "pages").glob("*.md")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [kafka](kafka4.md#modes)", "see [kafka](kafka4.md#modes)"),
        ("see [chart](../deploy/helm/confplane/README.md#values)", "see [chart](chart.md#values)"),
        ("see [all settings](../app/confplane/settings.py)", "see [all settings](settings.md)"),
        ("see [the example](../examples/clients)", "see the example (`examples/clients`)"),
        ("`[a](b.md)` and [a page](https://example.com)", "`[a](b.md)` and [a page](https://example.com)"),
        ("see [the\nchart](../deploy/helm/confplane/README.md)", "see [the\nchart](chart.md)"),
        ("text\n- item", "text\n\n- item"),
        ("- item\n  more\n  - inner", "- item\n    more\n    - inner"),
        (
            "1. item\n\n   ```sh\n   command\n     deeper\n   ```\n\n2. next",
            "1. item\n\n    ```sh\n    command\n      deeper\n    ```\n\n2. next",
        ),
        ("```\n[a](b.md)\n- item\n```", "```\n[a](b.md)\n- item\n```"),
        (r"| a | `b \| c` |", "| a | `b | c` |"),
    ],
)
def test_documents_become_pages(text: str, expected: str) -> None:
    assert site.converted(text, DOCUMENT) == f"{expected}\n"


@pytest.mark.parametrize("link", ["[a](../examples/none.py)", "![a](none.png)", "a\nlink](../examples/clients)"])
def test_a_link_to_a_file_that_is_gone_is_refused(link: str) -> None:
    with pytest.raises(site.BrokenLinkError, match=r"docs/a\.md: "):
        site.converted(link, DOCUMENT)


def test_each_metric_and_each_setting_is_in_the_reference() -> None:
    metrics, settings = reference.metrics(), reference.settings()
    assert [name for name in METRICS if f"`{PREFIX}{name}" not in metrics] == []
    assert [name for name in Settings.model_fields if f"`{name}" not in settings and name != "clusters"] == []


def test_each_operation_is_in_the_reference() -> None:
    page = reference.api()
    assert page.count("\n### ") >= 90
    assert "\nPUT /v1/clusters/{cluster}/client-quotas/{id}\n" in page


@pytest.mark.parametrize(
    "command", ["confplane set", "confplane serve", "confplane tokens create", "confplane rollups run"]
)
def test_commands_are_in_the_reference_with_their_options(command: str) -> None:
    section = reference.commands().partition(f"\n## {command}\n")[2].partition("\n## ")[0]
    assert section.count("\n| `--") >= 1
