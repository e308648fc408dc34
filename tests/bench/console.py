"""The console over a large cluster: the first paint in Chromium, and searches, of which none may read all entities."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import psutil
from playwright.sync_api import sync_playwright

from tests.bench.rounds import Figure, alternate, column, progress
from tests.bench.world import paths_of
from tests.browser.tab import Tab
from tests.console.visitor import Visitor, console_key
from tests.support import tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.rounds import Sample
    from tests.bench.world import World

_ENTITIES = "/console/clusters/default/entities"
_REQUESTS = 20
_GOAL_MS = 200.0
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def measure(world: World, *, rounds: int, entities: int) -> Iterator[Figure]:
    """Yield the figures of the console."""
    *_, last = paths_of(entities)
    user, client_id = last.split("/")[3], last.split("/")[5]
    one = f"{_ENTITIES}/user={user},client-id={client_id}"
    searches = {
        "first page of all entities": _ENTITIES,
        "search by the whole name of the last user": f"{_ENTITIES}?prefix={user}",
        "search by the beginning of all names": f"{_ENTITIES}?prefix=user-",
        "search by a name that nothing has": f"{_ENTITIES}?prefix=zzz",
        "search by a name of one type": f"{_ENTITIES}?prefix={user}&kind=user,client-id",
        "search by a key that all have": f"{_ENTITIES}?key=consumer_byte_rate",
        "page of one entity": one,
    }
    settings = console_key(world.directory)
    with world.service(world.filled(entities), settings=settings) as service, Visitor(service) as visitor:
        visitor.signed_in()

        process = psutil.Process(service.pid)

        def answered(path: str) -> Sample:
            times, before = [], sum(process.cpu_times()[:2])
            for _ in range(_REQUESTS):
                begun = time.monotonic()
                visitor.page(path)
                times.append((time.monotonic() - begun) * 1000)
            spent = sum(process.cpu_times()[:2]) - before
            return statistics.median(times), spent / _REQUESTS * 1000

        for search, path in searches.items():
            [times] = alternate(f"{search}, ms", rounds, lambda _, path=path: answered(path))  # type: ignore[misc]
            goal = [_GOAL_MS] * rounds
            name = f"Console, {search}, {entities:,} entities"
            yield Figure(name, "ms", column(times), "the goal", goal, "1.00", less_is_better=True)
            yield Figure(f"{name}: processor time", "ms", column(times, 1))
        try:
            chromium = tools.chromium()
        except tools.ToolMissingError as missing:
            progress.print(f"  skipped: {missing}")
            return
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
            with Tab(browser, service) as tab:
                tab.sign_in()
                cookies = tab.context.cookies()

            def painted(path: str) -> Sample:
                with Tab(browser, service) as cold:
                    cold.context.add_cookies(cookies)  # type: ignore[arg-type]
                    cold.open(path)
                    return (cold.page.evaluate(_PAINT),)

            for name, path in {"overview": "/console/", "entities": _ENTITIES, "one entity": one}.items():
                [times] = alternate(f"first paint of {name}, ms", rounds, lambda _, path=path: painted(path))  # type: ignore[misc]
                yield Figure(f"Console, first paint of {name} in Chromium, {entities:,} entities", "ms", column(times))
            browser.close()
