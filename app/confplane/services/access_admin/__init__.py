"""The management of tokens and grants, and answers to who may do what."""
