"""Manifests: configs as documents, with plans."""
