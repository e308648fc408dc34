"""One ordered stream of changes for each cluster."""
