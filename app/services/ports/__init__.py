"""The ports: the outside world as the use cases need it, one file for each part of it."""
