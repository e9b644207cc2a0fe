"""The gates in Redis, one per event: each refuses requests that the ledger would refuse. Also their resets."""
