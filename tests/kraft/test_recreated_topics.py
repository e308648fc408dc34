"""A topic of a real Kafka 4 that is recreated between a client's commit and the first request to the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confplane.client.errors import ResourceNotFoundError
from confplane.kraft.views import ConfigResourceType, Resource
from tests.support.commands import target
from tests.support.kraft_writer import KraftWriter
from tests.support.stores import soon
from tests.support.waiting import until

if TYPE_CHECKING:
    from confplane.kraft.client import KraftClient
    from tests.support.kraft import KraftCluster
    from tests.support.world import World

KEY, NAME = "retention.ms", "made-again"


async def test_it_gets_nothing_that_was_written_for_the_earlier_one(
    client: KraftClient, kraft: KraftCluster, world: World
) -> None:
    service = world.adopting(kraft)
    async with KraftWriter(kraft.bootstrap[0]) as outside:

        async def make() -> str:
            await outside.create_topics(NAME)
            await until(there)
            return (await client.topics(soon(), [NAME]))[NAME].topic_id.hex

        async def there() -> bool:
            return NAME in await client.topics(soon(), [NAME])

        async def gone() -> bool:
            return not await there()

        async def own() -> str | None:
            (found,) = await client.describe_configs([Resource(ConfigResourceType.TOPIC, NAME)], soon(), keys=[KEY])
            # Among the defaults, which have a source of their own.
            return next((each.value for each in found.entries if each.value == "7000"), None)

        first = await make()
        with service:
            async with service.client() as http:
                await until(lambda: _applies(http))
                # Changes are committed, the cluster is asked, and nothing is sent.
                target(service, "pause", "--reason", "a test")
                put: dict[str, Any] = {"json": {"configs": {KEY: "7000"}}}
                await http.request("PUT", f"configs/topic={NAME}", **put)
                await outside.delete_topics(NAME)
                await until(gone)
                assert await make() != first
                target(service, "resume", "--reason", "a test")

                async def undone() -> bool:
                    try:
                        await http.request("GET", f"configs/topic={NAME}")
                    except ResourceNotFoundError:
                        return True
                    return False

                await until(undone)
                assert await own() is None
                # The present topic is written as any other.
                await http.request("PUT", f"configs/topic={NAME}", **put)

                async def written() -> bool:
                    return await own() == "7000"

                await until(written)
        await outside.delete_topics(NAME)


async def _applies(http: Any) -> bool:
    target: dict[str, Any] = (await http.request("GET", "/v1/clusters/default")).body["target"]
    return bool(target["mode"] == "adopt")
