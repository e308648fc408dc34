"""Webhooks: subscriptions to the feed whose events are sent to URLs."""
