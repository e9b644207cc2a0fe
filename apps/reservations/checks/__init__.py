"""Checks of the inventory: audit, reconciliation, compensation of an oversell, and the history of a seat."""
