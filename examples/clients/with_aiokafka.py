"""A producer and a consumer of aiokafka that follow their dynamic configs, until Ctrl-C or SIGTERM.

::

    export CONFPLANE=http://127.0.0.1:8080 TOKEN=... KAFKA=localhost:9092
    python examples/clients/with_aiokafka.py alice orders

The first argument is the user as whom the clients log in to Kafka, the second a topic. Each tenth of a second a record
is sent and read, by a consumer of the group ``GROUP``, by default ``example``.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys

from confplane.client.dynamic import AIOKAFKA, AsyncDynamicConsumerConfig, AsyncDynamicProducerConfig, Service
from confplane.client.dynamic.adapters.aiokafka import swapped_consumer, swapped_producer


async def main(user: str, topic: str) -> None:
    """Send and read."""
    # SIGTERM, which container runtimes send, cancels the task as Ctrl-C does, also if the process ignores SIGINT.
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    service = Service(os.environ["CONFPLANE"], user=user, token=os.environ["TOKEN"])
    common = {"bootstrap_servers": os.environ["KAFKA"], "client_id": "example", "metadata_max_age_ms": 1000}
    of_producer = AsyncDynamicProducerConfig(common, library=AIOKAFKA, service=service)
    of_consumer = AsyncDynamicConsumerConfig(
        {**common, "group_id": os.environ.get("GROUP", "example"), "auto_offset_reset": "earliest"},
        library=AIOKAFKA,
        service=service,
        spread_s=1,  # a minute, rather, where a group has many members
    )
    number = 0
    async with of_producer, of_consumer:
        producing, consuming = swapped_producer(of_producer), swapped_consumer(of_consumer, [topic])
        await producing.start()
        await consuming.start()
        try:
            while True:
                async with producing.use() as producer:
                    await producer.send(topic, b"%d" % number, key=b"%d" % number)
                number += 1
                consumer = await consuming.current()
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        print("read", record.value.decode(), flush=True)
                await asyncio.sleep(0.1)
        finally:
            await producing.close()
            await consuming.close()


logging.basicConfig(level=logging.WARNING)
logging.getLogger("confplane.client.dynamic").setLevel(logging.INFO)
with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
    asyncio.run(main(*sys.argv[1:]))
