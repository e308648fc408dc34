"""The facts about settings that ``confplane doctor`` checks: contradictions, files, certificates."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from pydantic import BaseModel

from confplane.crypto.certificates import days_until_expiry
from confplane.services.ports.doctor_facts import ClusterChoices, FileFacts, SettingsFacts
from confplane.settings import UnusableSettingsError
from confplane.wiring import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from confplane.settings import Settings


def settings_facts(settings: Settings, now: datetime) -> SettingsFacts:
    """Return the facts about settings and the files that they name."""
    problems: list[str] = []
    for name in settings.clusters:
        try:
            build(settings, [name])
        except UnusableSettingsError as error:
            problems += error.problems
    return SettingsFacts(
        problems,
        settings.postgres.pool_size,
        settings.http.drain_ms,
        settings.limits.enabled,
        settings.webhooks.key_file is not None,
        settings.webhooks.insecure_http,
        {
            name: ClusterChoices(
                cluster.zookeeper,
                cluster.session_timeout_ms,
                cluster.notifications_max,
                cluster.record_external_changes,
                cluster.kafka is not None,
            )
            for name, cluster in settings.clusters.items()
        },
        [_file(setting, path, now) for setting, path in _files(settings)],
    )


def _files(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield each setting whose value is the path of a file, with its path."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        setting = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _files(value, f"{setting}.")
        elif isinstance(value, dict):
            for key, each in value.items():
                if isinstance(each, BaseModel):
                    yield from _files(each, f"{setting}.{key}.")
        elif name.endswith("_file") and value is not None:
            yield setting, value


def _file(setting: str, path: Path, now: datetime) -> FileFacts:
    try:
        mode = path.stat().st_mode
        days = days_until_expiry(path, now)
    except OSError as error:
        return FileFacts(setting, str(path), problem=error.strerror)
    return FileFacts(setting, str(path), None, bool(mode & (stat.S_IWGRP | stat.S_IWOTH)), days)
