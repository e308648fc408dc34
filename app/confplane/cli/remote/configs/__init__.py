"""``confplane configs``: the command line of ``kafka-configs.sh`` over the API of a service.

``options`` splits the words of a command line into options, ``arguments`` checks their combination and reads keys and
values, and ``command`` sends the requests and formats the output. ``shell`` runs several lines on one connection.

Source: core/src/main/scala/kafka/admin/ConfigCommand.scala of Kafka 3.9, KIP-21, KIP-649.
"""
