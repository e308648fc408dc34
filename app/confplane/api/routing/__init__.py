"""Request routing: routes, arguments, bodies, preconditions, Idempotency-Key."""
