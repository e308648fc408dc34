"""The recorder: finds external changes, and changes of this service that the trail lost."""
