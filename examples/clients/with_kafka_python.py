"""A producer and a consumer of kafka-python that follow their dynamic configs, until Ctrl-C or SIGTERM.

::

    export CONFPLANE=http://127.0.0.1:8080 TOKEN=... KAFKA=localhost:9092
    python examples/clients/with_kafka_python.py alice orders

The first argument is the user as whom the clients log in to Kafka, the second a topic. Each tenth of a second a record
is sent and read, by a consumer of the group ``GROUP``, by default ``example``.
"""

import contextlib
import logging
import os
import signal
import sys
import time

from confplane.client.dynamic import KAFKA_PYTHON, DynamicConsumerConfig, DynamicProducerConfig, Service
from confplane.client.dynamic.adapters.kafka_python import swapped_consumer, swapped_producer

logging.basicConfig(level=logging.WARNING)
logging.getLogger("confplane.client.dynamic").setLevel(logging.INFO)
# SIGTERM, which container runtimes send, raises KeyboardInterrupt as Ctrl-C does, also if the process ignores SIGINT.
signal.signal(signal.SIGTERM, signal.default_int_handler)
user, topic = sys.argv[1:]
service = Service(os.environ["CONFPLANE"], user=user, token=os.environ["TOKEN"])
common = {"bootstrap_servers": os.environ["KAFKA"], "client_id": "example", "metadata_max_age_ms": 1000}
of_producer = DynamicProducerConfig(common, library=KAFKA_PYTHON, service=service)
of_consumer = DynamicConsumerConfig(
    {**common, "group_id": os.environ.get("GROUP", "example"), "auto_offset_reset": "earliest"},
    library=KAFKA_PYTHON,
    service=service,
    spread_s=1,  # a minute, rather, where a group has many members
)
number = 0
with of_producer, of_consumer:
    producing, consuming = swapped_producer(of_producer), swapped_consumer(of_consumer, [topic])
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            with producing.use() as producer:
                producer.send(topic, b"%d" % number, key=b"%d" % number)
            number += 1
            for records in consuming.current().poll(timeout_ms=100).values():
                for record in records:
                    print("read", record.value.decode(), flush=True)
            time.sleep(0.1)
producing.close()
consuming.close()
