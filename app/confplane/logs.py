"""The log of the service: lines of text, or a JSON object in each line.

The lines of a request have its id, and those of a change the id of the change. With traces, lines within a span have
the ids of the trace and the span, under the names that OpenTelemetry recommends for JSON.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from confplane.domain.texts import rfc3339
from confplane.services.metrics import CHANGE_ID, REQUEST_ID, Tracing


def set_up(level: str, *, as_json: bool) -> None:
    """Log lines of a level and above to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler.setFormatter(JsonFormatter() if as_json else text)
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        if (change_id := CHANGE_ID.get()) is not None:
            line["change_id"] = str(change_id)
        line |= Tracing.ids()
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
