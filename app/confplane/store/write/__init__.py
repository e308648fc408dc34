"""Writes: conditional transactions, their admission, their markers, and the clean-up after them."""
