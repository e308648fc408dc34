"""Swaps with the clients of each library; a module here imports its library."""
