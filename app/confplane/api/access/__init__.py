"""Answers to who may do what, and the history of tokens and grants."""
