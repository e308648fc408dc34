"""The management of tokens and grants, and queries of the rights of principals."""
