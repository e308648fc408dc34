"""The operations of the API, one module per family; :mod:`confplane.client.core.operations` explains their form."""
