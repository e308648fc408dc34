"""Build the documentation site: ``python -m tests.docs.site [FOLDER]``, or ``make docs``.

The pages are those of ``docs/``, some other documents of the repository, and the reference. All of them are written for
GitHub, whose Markdown differs from Python-Markdown's in the indentation of lists; they are converted here.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.docs import reference
from tests.support.processes import ROOT, start_children_with_defaults

DOCS: Final = ROOT / "docs"
CONFIG: Final = DOCS / "zensical.toml"
OTHERS: Final = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "deploy/helm/confplane/README.md": "chart.md",
    "openapi/CHANGELOG.md": "api-changelog.md",
    "tests/README.md": "tests.md",
}
"""Documents outside of docs/ -> their pages."""

_LINK: Final = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_PICTURE: Final = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")
_REST_OF_LINK: Final = re.compile(r"^([^\[\]`]*)\]\(([^()\s]+)\)")
"""The end of a link whose text begins on the line before."""
_ITEM: Final = re.compile(r"( *)([-*+]|\d+[.)])( +)\S")


class BrokenLinkError(Exception):
    """A link to a file that does not exist, or to a picture that is not one of the site's."""


def sources() -> dict[str, Path]:
    """Return page -> file of all pages that are not generated."""
    return {path.name: path for path in DOCS.glob("*.md")} | {page: ROOT / path for path, page in OTHERS.items()}


@functools.cache
def _pages() -> dict[Path, str]:
    """Return file -> page of all links that lead to pages."""
    generated = {ROOT / path: page for page, path in reference.SOURCES.items()}
    named = {DOCS / page: page for page in reference.SOURCES}
    return generated | named | {path: page for page, path in sources().items()}


def assemble(folder: Path) -> None:
    """Write the pages, the pictures and the configuration of the site into an empty folder."""
    pages = folder / "pages"
    pages.mkdir(parents=True)
    shutil.copy(CONFIG, folder)
    for picture in DOCS.glob("*.png"):
        shutil.copy(picture, pages)
    for name, path in sources().items():
        (pages / name).write_text(converted(path.read_text("utf-8"), path), "utf-8")
    for name, text in reference.pages().items():
        (pages / name).write_text(converted(text, DOCS / name), "utf-8")


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a folder; warnings are errors."""
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def converted(text: str, path: Path) -> str:
    """Return a document of the repository as a page of the site.

    Raises:
        BrokenLinkError: A link leads to a file that does not exist.
    """
    lines: list[str] = []
    items: list[int] = []  # the columns at which the contents of the open items of lists begin
    fence: str | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if fence is None and line.strip():
            while items and indent < items[-1]:
                items.pop()
        if not line.strip():
            lines.append("")
            continue
        before = items[-1] if items else 0
        shifted = " " * (4 * len(items) + max(0, indent - before)) + line.lstrip()
        if fence is not None:
            fence = None if line.strip() == fence else fence
            lines.append(shifted)
            continue
        if opened := re.match(r" *(```+)", line):
            fence = opened[1]
            lines.append(shifted)
            continue
        if item := _ITEM.match(line):
            if (
                not items
                and lines
                and lines[-1].strip()
                and not _ITEM.match(lines[-1])
                and not lines[-1].startswith(" ")
            ):
                lines.append("")
            items.append(item.end() - 1)
        lines.append(
            _table_row(_with_links(shifted, path)) if shifted.lstrip().startswith("|") else _with_links(shifted, path)
        )
    return "\n".join(lines) + "\n"


def _table_row(line: str) -> str:
    """Return a row whose code has no escaped bars: Python-Markdown shows the backslash."""
    return re.sub(r"`[^`]+`", lambda code: code[0].replace("\\|", "|"), line)


def _with_links(line: str, path: Path) -> str:
    """Return a line whose links to documents lead to their pages; other files of the repository are named instead."""

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        page, place = _target(target, path)
        if page is not None:
            return f"[{text}]({page})"
        return f"`{place}`" if text.strip("`") in {target, place} else f"{text} (`{place}`)"

    def rest(found: re.Match[str]) -> str:
        page, _ = _target(found[2], path)
        if page is None:
            raise BrokenLinkError(f"{path.relative_to(ROOT)}: put the text of the link to {found[2]} on one line")
        return f"{found[1]}]({page})"

    for picture in _PICTURE.findall(line):
        if not (DOCS / picture).is_file():
            raise BrokenLinkError(f"{path.relative_to(ROOT)}: {picture}")
    parts = re.split(r"(`[^`]*`(?!\]))", _REST_OF_LINK.sub(rest, line))
    return "".join(part if number % 2 else _LINK.sub(link, part) for number, part in enumerate(parts))


def _target(target: str, path: Path) -> tuple[str | None, str]:
    """Return the address of a link's page, or None if there is none, and the file in the repository."""
    if re.match(r"[a-z]+:|#", target):
        return target, target
    name, mark, anchor = target.partition("#")
    file = Path(os.path.normpath(path.parent / name))
    place = str(file.relative_to(ROOT))
    if page := _pages().get(file):
        return f"{page}{mark}{anchor}", place
    if not file.exists():
        raise BrokenLinkError(f"{path.relative_to(ROOT)}: {target}")
    return None, place


def main(folder: Path) -> int:
    """Build the site, and print where it is; the exit code is 1 if there are warnings."""
    shutil.rmtree(folder, ignore_errors=True)
    assemble(folder)
    done = build(folder)
    sys.stdout.write(done.stdout + done.stderr)
    if done.returncode == 0:
        sys.stdout.write(f"{folder / 'site' / 'index.html'}\n")
    return done.returncode


if __name__ == "__main__":
    start_children_with_defaults()
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / ".site"))
