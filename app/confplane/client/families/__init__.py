"""The operations of the API, a module for each family; :mod:`app.client.core.operations` says how they are written."""
