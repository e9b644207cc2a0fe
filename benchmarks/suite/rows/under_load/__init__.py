"""Rows with an open loop: requests arrive on schedule, whether earlier ones have responses or not."""
