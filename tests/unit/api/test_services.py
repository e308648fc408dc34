"""The services that handlers take, and the check of their application at its start."""

from __future__ import annotations

from typing import Any, cast

import pytest

from confplane.api import services
from confplane.api.app import FAMILIES, create_api


def test_an_application_without_a_service_does_not_start() -> None:
    given = {each: object() for each in vars(services).values() if isinstance(each, services.ServiceDependency)}
    del given[services.ALTER]
    with pytest.raises(ValueError, match=r"no service for ALTER$"):
        create_api(
            given,
            authenticator=cast("Any", None),
            max_body_bytes=1,
            deadline_ms=1,
            traffic=cast("Any", None),
            options=cast("Any", None),
        )


def test_handlers_take_only_services_whose_presence_is_checked() -> None:
    taken = {
        part.call
        for family in FAMILIES
        for route in family
        for part in route.dependant.dependencies
        if isinstance(part.call, services.ServiceDependency)
    }
    checked = {getattr(services, name) for name in services.missing({})}
    assert taken
    assert taken <= checked
