"""JSON that is rendered once for each node and then cached."""
