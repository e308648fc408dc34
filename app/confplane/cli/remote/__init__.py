"""Commands over the API of a service: what people and pipelines run with the base package and a URL.

A module ``*_commands`` has subcommands and their help; the other modules implement them. All of them use the client
library, and none imports the service's own code.
"""
