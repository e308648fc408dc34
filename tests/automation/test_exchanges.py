"""Exchanges with Terraform's provider, recorded by :mod:`tests.automation.test_terraform` and answered again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import httpx

from tests.automation import exchanges

if TYPE_CHECKING:
    from tests.support.service import Service


def test_the_exchanges_of_a_real_run_are_answered_as_they_were(service: Service) -> None:
    recorded = json.loads(exchanges.FILE.read_text())
    headers = {"Authorization": f"Bearer {service.token}"}
    with httpx.Client(base_url=service.url, headers=headers, trust_env=False) as http:
        for step, each in ((step, each) for step, some in recorded.items() for each in some):
            found = exchanges.exchanged(http, each["method"], each["path"], each["body"])
            assert asdict(found) == each, step
    methods = {each["method"] for some in recorded.values() for each in some}
    assert methods == {"POST", "GET", "PUT", "DELETE"}
