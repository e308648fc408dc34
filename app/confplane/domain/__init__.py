"""Pure rules of Kafka's dynamic configuration: entities, facets, filters, changes, errors.

No I/O and no third-party packages.
"""
