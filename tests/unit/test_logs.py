from __future__ import annotations

import json
import logging
import sys
from contextvars import copy_context
from uuid import UUID

from confplane.logs import JsonFormatter
from confplane.services.metrics import CHANGE_ID, REQUEST_ID

CHANGE = UUID("019a9c5e-7b2c-7d11-8a52-5d0c6f7e9b10")


def record(*arguments: object) -> logging.LogRecord:
    return logging.LogRecord("confplane.x", logging.WARNING, "x.py", 1, "Postgres\n%s", arguments, sys.exc_info())


def test_an_error_is_one_line_of_json_with_its_traceback() -> None:
    try:
        int("out\nof range")
    except ValueError:
        text = JsonFormatter().format(record("Größe"))
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"]) == ("WARNING", "confplane.x", "Postgres\nGröße")
    assert line["time"].endswith("Z")
    assert line["exception"].endswith("'out\\nof range'")
    assert line.keys() & {"request_id", "change_id", "trace_id"} == set()


def test_a_line_has_the_ids_of_its_request_and_change() -> None:
    def within() -> str:
        REQUEST_ID.set("r-1")
        CHANGE_ID.set(CHANGE)
        return JsonFormatter().format(record("x"))

    line = json.loads(copy_context().run(within))
    assert (line["request_id"], line["change_id"]) == ("r-1", str(CHANGE))
    assert "exception" not in line
