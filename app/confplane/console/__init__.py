"""The web console: pages for people, rendered on the server from answers of the API."""
