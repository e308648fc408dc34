"""What is written: conditional transactions, what admits them, what proves them and what cleans up after them."""
