"""The forms of an export, of entities that are made up; tests/interop plays one into a real cluster by Kafka's tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from confplane.cli.remote.configs import arguments, options
from confplane.cli.remote.export_forms import form_of, quoted
from confplane.cli.remote.selection import EntityReader, EntitySelection
from confplane.client import AsyncConfplane
from confplane.domain.entities import Entity
from tests.support.odd_configs import NAMES
from tests.support.scripts import calls

if TYPE_CHECKING:
    from pathlib import Path

Items = dict[Entity, dict[str, Any]]

VALUES: Final = (
    "",
    " both blanks ",
    "a,b=[c],d",
    "]",
    "two\nlines\tand\rmore\f",
    'it\'s "$HOME" `id` ${x} %{y} \\n \\',
    "END",
    "#no comment",
    "!nor this",
    "k: v",
    "\u00e9\U0001f511\u0085\u2028",
)


def source(
    quotas: Items | None = None, client_configs: Items | None = None, configs: Items | None = None
) -> EntityReader:
    """A source of these entities."""
    lists = {"client-quotas": quotas or {}, "client-configs": client_configs or {}, "configs": configs or {}}

    def answer(request: httpx.Request) -> httpx.Response:
        facet = request.url.path.rpartition("/")[2]
        member = "quotas" if facet == "client-quotas" else "configs"
        found = sorted(lists[facet].items(), key=lambda item: item[0].id)
        items = [{"id": entity.id, member: values} for entity, values in found]
        return httpx.Response(200, json={"items": items, "nextPageToken": None, "skipped": []})

    client = AsyncConfplane("http://confplane.test", token=None, transport=httpx.MockTransport(answer))
    return EntityReader(client, EntitySelection({}))


async def test_commands_name_the_entities_and_values_that_there_are(tmp_path: Path) -> None:
    quotas: Items = {
        Entity.of(user=None): {"producer_byte_rate": 1, "request_percentage": 0.5},
        Entity.of(user=None, client_id=None): {"request_percentage": 1e-5},
        Entity.of(ip="10.0.0.1"): {"connection_creation_rate": 2**31 - 1},
        **{Entity.of(user=name, client_id=name[::-1]): {"producer_byte_rate": 2**63 - 1} for name in NAMES},
    }
    configs: Items = {
        Entity.of(broker=None): {"log.retention.ms": "5"},
        Entity.of(broker="7"): {f"key{number}": value for number, value in enumerate(VALUES)},
        Entity.of(topic="orders"): {"cleanup.policy": "compact,delete", "retention.ms": "-1"},
        Entity.of(group="a b"): {"consumer.session.timeout.ms": "50000"},
        Entity.of(client_metrics="m"): {"interval.ms": "100", "metrics": "*"},
    }
    found = source(quotas, configs=configs)
    script = "".join([text async for text in form_of("kafka-configs", "keep")(found)])
    (tmp_path / "script").write_text(script, "utf-8")
    words = calls(tmp_path / "script", "keep", tmp_path)
    read = [arguments.read(options.split(each)) for each in words]
    assert {each.entity: each.added for each in read} == {
        entity: {key: value if isinstance(value, str) else str(value) for key, value in values.items()}
        for entity, values in (quotas | configs).items()
    }
    assert found.left_out == 0


@pytest.mark.parametrize("form", ["yaml", "kafka-configs", "terraform"])
async def test_no_form_commands_a_terminal(form: str) -> None:
    name = "a\x1b[31mb\x9bc\u202ed"
    found = source({Entity.of(user=name): {"producer_byte_rate": 1}}, configs={Entity.of(broker="1"): {"a": name}})
    text = "".join([text async for text in form_of(form, None)(found)])
    assert "producer_byte_rate" in text
    assert text.replace("\n", "").isprintable()


async def test_what_kafkas_tool_cannot_set_is_left_out_with_a_comment() -> None:
    alice, broker = Entity.of(user="alice"), Entity.of(broker="3")
    found = source(
        {alice: {"producer_byte_rate": 2**53 + 1}},
        {alice: {"acks": "all"}},
        {broker: {"ssl.keystore.password": None, "a\nb": "c", "d": "e"}},
    )
    script = "".join([text async for text in form_of("kafka-configs", "keep")(found)])
    assert script.splitlines()[6:] == [
        "# A secret, to be set by hand: broker=3, ssl.keystore.password",
        "# Left out: broker=3, \"a\\nb\": Kafka's tool takes letters, digits, '.', '_' and '-' in a key",
        "keep --alter --entity-type brokers --entity-name 3 --add-config d=e",
        "# Left out: user=alice, producer_byte_rate: Kafka's tool rounds 9007199254740993",
        "# Left out: user=alice, acks: Kafka's tool has no client configs",
    ]
    assert (found.left_out, len(found.reasons), found.secrets) == (3, 3, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", '"plain"'),
        ('a "b" \\n', r'"a \"b\" \\n"'),
        ("two\nlines\r\t", r'"two\nlines\r\t"'),
        ("${a} %{b} $c %d $${e}", '"$${a} %%{b} $c %d $$${e}"'),
        ("\x01\x85\u2028\u00e9\U0001f511\U000e0001", r'"\u0001\u0085\u2028' + "\u00e9\U0001f511" + r'\U000e0001"'),
    ],
)
def test_no_template_begins_in_a_string_of_hcl(text: str, expected: str) -> None:
    assert quoted(text) == expected


async def test_what_terraform_cannot_manage_is_left_out_with_a_comment() -> None:
    found = source(
        {Entity.of(user="a"): {"producer_byte_rate": 0.5}},
        configs={
            Entity.of(group="g"): {"a": "b"},
            Entity.of(broker="1"): {"a": "e\u0301", "b": "c"},
            Entity.of(broker="2"): {"a": "\u00e9", "b": None},
        },
    )
    text = "".join([text async for text in form_of("terraform", None)(found)])
    assert [line for line in text.splitlines() if line.startswith(("#", '    "'))][2:] == [
        '    "user=a" = { "producer_byte_rate" = 0.5 }',
        "# Left out: broker=1: Terraform would change a text that is not in Unicode's form NFC",
        '    "broker=2" = { "a" = "\u00e9", "b" = null }',
        '    "group=g" = { "a" = "b" }',
    ]
    assert found.left_out == 1


@pytest.mark.parametrize("count", [5, 25])
async def test_reasons_are_bounded(count: int) -> None:
    found = source(client_configs={Entity.of(user=f"u{number}"): {"acks": "all"} for number in range(count)})
    script = "".join([text async for text in form_of("kafka-configs", "keep")(found)])
    assert script.count("# Left out") == found.left_out == count
    assert len(found.reasons) == min(count, 20)
