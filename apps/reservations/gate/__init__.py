"""The gate: one per event in Redis, which refuses requests that the ledger would refuse, and its resets."""
