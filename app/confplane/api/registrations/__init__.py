"""Registrations of client software (KIP-649)."""
