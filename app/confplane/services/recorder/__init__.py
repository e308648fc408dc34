"""The recorder: finds changes by others, and changes of this service that the trail lost."""
