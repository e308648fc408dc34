"""Commands over the API of a service: what people and pipelines run with the base package and a URL.

A module ``*_commands`` has a group of subcommands, their help and their work. All modules use the client library, and
none imports the service's own code.
"""
