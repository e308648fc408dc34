"""The metrics of a service at ``/metrics``, in the form that Prometheus reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
from prometheus_client.parser import text_string_to_metric_families

from confplane.services.metrics import Histogram
from confplane.telemetry import CACHE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confplane.services.metrics import MetricsSource
    from tests.support.service import Service


def value_of(part: MetricsSource, name: str, *labels: str) -> float:
    """Return the only sample of a name, and of labels if some are given, among the metrics of a part."""
    [found] = [each.value for each in part.metrics() if each.name == name and labels in {(), each.labels}]
    assert not isinstance(found, Histogram)
    return found


class Scraped:
    """One answer of ``/metrics``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        samples = [sample for family in self.families.values() for sample in family.samples]
        self._samples = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
        assert len(self._samples) == len(samples), "a sample is there twice"

    def __iter__(self) -> Iterator[tuple[str, dict[str, str]]]:
        return ((name, dict(labels)) for name, labels in self._samples)

    def get(self, name: str, **labels: str) -> float | None:
        """Return one sample's value, or None if it is absent; names are without ``confplane_``."""
        return self._samples.get((f"confplane_{name}", tuple(sorted(labels.items()))))

    def __call__(self, name: str, **labels: str) -> float:
        """Return one sample's value; it must exist."""
        found = self.get(name, **labels)
        assert found is not None, f"no {name}{labels} in\n{self.text}"
        return found

    def total(self, name: str, **labels: str) -> float:
        """Add up the samples of a name that have at least these labels."""
        wanted = labels.items()
        return sum(
            value
            for (found, has), value in self._samples.items()
            if found == f"confplane_{name}" and wanted <= dict(has).items()
        )

    def state(self, name: str, cluster: str = "default") -> str:
        """Return the state of a set in which exactly one is 1."""
        found = {
            dict(labels)["state"]: value
            for (sample, labels), value in self._samples.items()
            if sample == f"confplane_{name}" and dict(labels)["cluster"] == cluster
        }
        now = [state for state, value in found.items() if value]
        assert len(now) == 1, found
        return now[0]


_asked: dict[str, float] = {}
"""The time of the last scrape by address."""


def scrape(service: Service) -> Scraped:
    """Scrape the current metrics of a service, without a token, after the last scraped ones have expired."""
    time.sleep(max(0.0, _asked.get(service.url, 0.0) + 1.05 * CACHE_S - time.monotonic()))
    answer = httpx.get(f"{service.url}/metrics", trust_env=False, timeout=60)
    _asked[service.url] = time.monotonic()
    assert answer.status_code == 200, answer.text
    return Scraped(answer.text)
