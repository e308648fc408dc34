"""Made-up clusters of any size: who is there, a trail of months, registrations, and the znodes that come of it."""
