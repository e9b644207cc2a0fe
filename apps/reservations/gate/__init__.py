"""What Redis may refuse, and how it is kept true to the ledger: one gate per event."""
