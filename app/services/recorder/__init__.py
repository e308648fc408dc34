"""The recorder: finds the changes that others made, and changes of this service that the trail lost."""
