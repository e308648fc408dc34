"""Dynamic configs inside applications: the client's side of KIP-649.

| file | content |
|---|---|
| ``names.py`` | the libraries: names and types of their settings |
| ``rules.py`` | the dynamic values that a client applies, and those that it drops |
| ``source.py`` | the source of updates, and the poll |
| ``last_known_good.py`` | the file of last known good values |
| ``config_follower.py`` | the settings of one client as updates arrive |
| ``reconfigurable.py`` | objects that take changed settings over |
| ``reports.py`` | the client's reports on its applied configs |
| ``config.py`` | all of it together, run by a thread or a task |
| ``swap.py``, ``swap_async.py`` | a new client in place of the old one, with no record lost |
| ``steps.py`` | the steps that both kinds of swaps share |
| ``adapters/`` | swaps with the clients of each library |
"""

from confplane.client.dynamic.config import (
    AsyncDynamicConsumerConfig,
    AsyncDynamicProducerConfig,
    DynamicConsumerConfig,
    DynamicProducerConfig,
    Service,
)
from confplane.client.dynamic.names import AIOKAFKA, CONFLUENT_KAFKA, JAVA, KAFKA_PYTHON, Library
from confplane.client.dynamic.reconfigurable import Reconfigurable
from confplane.client.dynamic.rules import Decision, Dropped

__all__ = [
    "AIOKAFKA",
    "CONFLUENT_KAFKA",
    "JAVA",
    "KAFKA_PYTHON",
    "AsyncDynamicConsumerConfig",
    "AsyncDynamicProducerConfig",
    "Decision",
    "Dropped",
    "DynamicConsumerConfig",
    "DynamicProducerConfig",
    "Library",
    "Reconfigurable",
    "Service",
]
