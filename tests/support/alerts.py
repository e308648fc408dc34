"""The alerts of the chart, evaluated on the metrics of parts and of processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import yaml

from confplane.telemetry import Telemetry
from tests.support.processes import ROOT
from tests.support.promql import ScrapeSeries

if TYPE_CHECKING:
    from confplane.services.metrics import MetricsSource

ALERTS: Final[list[dict[str, Any]]] = yaml.safe_load((ROOT / "deploy/helm/confplane/alerts.yaml").read_text())
EXPRESSIONS: Final[dict[str, str]] = {each["alert"].removeprefix("Confplane"): each["expr"] for each in ALERTS}
_PAUSE_S: Final = 60.0


def firing(series: ScrapeSeries) -> set[str]:
    """Return the alerts whose expressions hold, without ``Confplane``."""
    return {name for name, expression in EXPRESSIONS.items() if series.query(expression)}


class PartAlerts:
    """The alerts of some parts of a process, which are scraped once a minute: at the start, and by each call."""

    def __init__(self, *parts: MetricsSource) -> None:
        self._parts = parts
        self._series = ScrapeSeries()
        self._at = time.time()
        self.scrape()

    def scrape(self) -> set[str]:
        """Scrape the parts a minute after the last time, and return the alerts whose expressions hold then."""
        body, _ = Telemetry(self._parts).render(openmetrics=False)
        self._at += _PAUSE_S
        return firing(self._series.add(body.decode(), self._at))
