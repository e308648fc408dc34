"""Single entities of a facet as resources, the same code for every facet."""
