"""The idle reaper: a Kafka that the tests of a folder share ends after the last of them.

It takes processor time even when idle.
"""

from __future__ import annotations

import pytest


@pytest.mark.usefixtures("kraft")
def test_a_cluster_that_runs_is_known_to_the_plugin_that_ends_it(pytestconfig: pytest.Config) -> None:
    idle_reaper = pytestconfig.pluginmanager.get_plugin("idle_reaper")
    assert idle_reaper is not None
    assert "kraft" in idle_reaper.running
