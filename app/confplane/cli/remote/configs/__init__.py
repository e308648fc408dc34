"""``confplane configs``: the command line of ``kafka-configs.sh`` over the API of a service.

A command line is read in three steps: ``options`` splits words into options, ``arguments`` checks their combination,
``pairs`` reads keys and values; ``changes`` sorts those of clients. ``describe`` and ``alter`` send the requests,
``lines`` formats the output.

Source: core/src/main/scala/kafka/admin/ConfigCommand.scala of Kafka 3.9, KIP-21, KIP-649.
"""
