"""The ports of the use cases to the outside world, one file for each part."""
