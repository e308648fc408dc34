"""HTTP: routers, wire schemas, problems, conditional requests. The only package that imports FastAPI."""
