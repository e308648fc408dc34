"""Names in the documents: each stands for something that is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
GLOSSARY: Final = (ROOT / "docs/glossary.md").read_text()
ARCHITECTURE: Final = (ROOT / "docs/architecture.md").read_text()
KAFKA4: Final = (ROOT / "docs/kafka4-design.md").read_text()
DESIGNS: Final = "".join(
    path.read_text() for path in [*sorted((ROOT / "docs").glob("*-design.md")), ROOT / "tests/README.md"]
)
COMPATIBILITY: Final = (ROOT / "docs/kafka-compatibility.md").read_text()
GUARANTEES: Final = (ROOT / "docs/guarantees.md").read_text()
FAULTS: Final = (ROOT / "tests/faults/README.md").read_text()
CONTRIBUTING: Final = (ROOT / "CONTRIBUTING.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in COMPATIBILITY.partition("## Differences\n")[2].splitlines()
    if line.startswith("| ")
]
LOOP: Final = ROOT / "app/confplane/services/kraft"
WAITS: Final = {
    "at once": None,
    "1 min": "1m",
    "2 min": "2m",
    "5 min": "5m",
    "10 min": "10m",
    "1 h": "1h",
    "1 day": "1d",
}
"""The times of the table of alerts, as Prometheus writes them."""


def defects() -> list[list[str]]:
    """Return the rows of the tables of defects."""
    lines = FAULTS.partition("\n### ")[2].splitlines()
    return [
        row
        for line in lines
        if line.startswith("| ") and (row := [cell.strip() for cell in line.strip("|").split(" | ")])[0] != "defect"
    ]


def named_tests() -> Iterator[tuple[str, str]]:
    """Yield (file, test) of all that docs/guarantees.md and tests/faults/README.md name.

    A bare name is of a file that its section begins with.
    """
    for defect in defects():
        yield from re.findall(r" tests/([a-z0-9_/]+\.py)::(test_\w+)", defect[-1])
    for section in GUARANTEES.split("\n## "):
        intro = section.partition("\n| promise |")[0].partition("\n| fact, ")[0]
        files = re.findall(r"`([a-z_/]+\.py)`", intro)
        for code in re.findall(r"`([^`\n]+)`", section):
            if match := re.fullmatch(r"([a-z_/]+\.py)::(test_\w+)", code):
                yield match[1], match[2]
            elif re.fullmatch(r"test_\w+", code):
                yield ",".join(files), code


def test_each_test_that_a_document_names_is_there() -> None:
    named = sorted(set(named_tests()))
    texts = {file: (ROOT / "tests" / file).read_text() for files, _ in named for file in files.split(",") if file}
    tests = {file: re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE) for file, text in texts.items()}
    assert [
        (files, test) for files, test in named if sum(tests[file].count(test) for file in files.split(",") if file) != 1
    ] == []


def test_each_threat_has_tests_that_are_there() -> None:
    text = (ROOT / "docs/security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", text))
    assert len(named) > 20
    files = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named <= set(re.findall(r"^(?:async )?def (test_\w+)", files, re.MULTILINE))
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert [row for row in rows if "`test_" not in row] == [row for row in rows if "`make audit`" in row]


def test_each_defect_has_a_known_origin_and_a_command() -> None:
    origins = ", ".join(
        re.findall(r"^\| ([^|]+) \| ", FAULTS.partition("| found by |")[2].partition("\n### ")[0], re.MULTILINE)
    )
    for defect, found_by, command in defects():
        assert found_by.partition(", seed")[0] in origins.split(", "), defect
        assert re.fullmatch(r"`\.venv/bin/python -m pytest tests/[a-z0-9_/]+\.py::test_\w+`", command), defect


def test_the_table_of_defects_has_many() -> None:
    assert len(defects()) >= 40


def test_each_file_of_the_fault_suite_is_in_its_table() -> None:
    named = set(re.findall(r"`([a-z_]+\.py)`", FAULTS.partition("\n## ")[0]))
    there = {
        path.name for path in (ROOT / "tests/faults").glob("*.py") if not path.name.startswith(("test_", "conftest"))
    }
    assert named == there


def test_the_guarantees_name_many_tests() -> None:
    assert len(set(named_tests())) >= 80


def test_each_file_that_a_document_names_is_there() -> None:
    named = set(re.findall(r"`(?:tests/)?((?:[a-z_]+/)+test_[a-z_]+\.py)`", GUARANTEES + FAULTS))
    assert named
    assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []


def test_it_is_said_which_tests_belong_into_each_folder() -> None:
    table = CONTRIBUTING.partition("| folder | tests of |\n")[2].partition("\n\n")[0]
    named = re.findall(r"`tests/([a-z0-9]+)`", table)
    assert sorted(named) == sorted(
        {path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/**/test_*.py")}
    )


def test_each_row_of_the_compatibility_page_is_pinned() -> None:
    pins = {name for row in ROWS if row[-1] not in {"-", "pinned by"} for name in row[-1].split(", ")}
    assert [name for name in sorted(pins) if not (ROOT / f"tests/{name}.py").is_file()] == []


def test_most_rows_are_pinned() -> None:
    headers = [row for row in ROWS if row[-1] == "pinned by"]
    unpinned = [row[0] for row in ROWS if row[-1] == "-"]
    assert len(headers) == 10
    assert len(unpinned) <= 5, unpinned


def folders(package: str, listed: str) -> tuple[list[str], set[str]]:
    """Return the folders that the table behind a text names, in its order, and those that are there."""
    table = ARCHITECTURE.partition(listed)[2].partition("\n\n| ")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`([a-z_]+)/`", row)]
    return named, {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}


@pytest.mark.parametrize(
    ("package", "listed"),
    [("app/confplane/services", "\nWithin `services` "), ("app/confplane/api", "\n`api` has the same rule")],
)
def test_the_tables_of_folders_name_each_folder_once(package: str, listed: str) -> None:
    named, there = folders(package, listed)
    assert len(named) == len(set(named))
    assert set(named) == there


def test_a_folder_of_the_services_knows_only_the_folders_above_it() -> None:
    named, _ = folders("app/confplane/services", "\nWithin `services` ")
    for position, name in enumerate(named):
        files = (ROOT / "app/confplane/services" / name).glob("*.py")
        known = {each for path in files for each in re.findall(r"from confplane\.services\.(\w+)", path.read_text())}
        assert known.intersection(named[position + 1 :]) == set(), name


def test_each_file_that_the_pages_on_the_design_name_is_there() -> None:
    named = set(re.findall(r"`((?:app|tests)/[a-z_/0-9]+\.py)`", ARCHITECTURE + DESIGNS))
    assert len(named) > 50
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_each_file_of_the_flows_of_kafka_4_is_there() -> None:
    """Each file of the loop is in a flow, and each file that a flow or the page on the design names exists."""
    app = ROOT / "app/confplane"
    flows = ARCHITECTURE.partition("\n## Kafka 4\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`((?:[a-z0-9_]+/)*[a-z0-9_]+\.py)`", flows))
    assert [name for name in named if not any((root / name).is_file() for root in (ROOT, app, LOOP))] == []
    there = {str(path.relative_to(LOOP)) for path in LOOP.rglob("*.py") if path.name not in {"__init__.py", "ports.py"}}
    assert there - {name.removeprefix("app/confplane/services/kraft/") for name in named} == set()
    design = set(re.findall(r"`((?:apply|observe|reconcile)/[a-z_]+\.py)`", KAFKA4))
    assert design
    assert [name for name in design if not (LOOP / name).is_file()] == []


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_link_of_the_glossary_leads_to_a_heading() -> None:
    known: dict[str, set[str]] = {}
    for link in sorted(set(re.findall(r"\]\(([^)]+)\)", GLOSSARY))):
        name, _, anchor = link.partition("#")
        if name not in known:
            known[name] = anchors(ROOT / "docs" / (name or "glossary.md"))
        assert not anchor or anchor in known[name], link


def test_the_glossary_is_in_alphabetical_order() -> None:
    groups = [re.findall(r"^\| (.*?) \|", group, re.MULTILINE)[1:] for group in GLOSSARY.split("\n## ")[1:]]
    assert [group for group in groups if [term.lower() for term in group] != sorted(map(str.lower, group))] == []
    assert sum(map(len, groups)) >= 150


def test_the_alerts_of_the_chart_are_those_of_the_page() -> None:
    """The chart's tests, which need Helm, compare the rule that it creates with the chart's own file."""
    part = (ROOT / "docs" / "operations.md").read_text().partition("### Alerts\n")[2].partition("\n## ")[0]
    rows = [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in part.splitlines() if line[:3] == "| `"]
    alerts = yaml.safe_load((ROOT / "deploy" / "helm" / "confplane" / "alerts.yaml").read_text())
    found = [(each["expr"], each.get("for"), each["meaning"], each["remedy"]) for each in alerts]
    assert found == [(when.strip("`"), WAITS[wait], meaning, remedy) for when, wait, meaning, remedy in rows]


def test_each_alert_is_expected_by_a_test_that_produces_its_fault() -> None:
    alerts = yaml.safe_load((ROOT / "deploy" / "helm" / "confplane" / "alerts.yaml").read_text())
    names = {each["alert"].removeprefix("Confplane") for each in alerts}
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    tests = "".join(path.read_text() for path in sorted(files) if "support.alerts" in path.read_text())
    # tests/system/test_session_states.py counts one gap; the alert needs four in an hour.
    assert {name for name in names if f'"{name}"' not in tests} == {"MirrorGaps"}
