"""OIDC access tokens: their form, their issuers' keys, their claims, and the identities that they make."""
