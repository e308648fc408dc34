"""The way of a request to its handler: routes, arguments, bodies, preconditions, Idempotency-Key."""
