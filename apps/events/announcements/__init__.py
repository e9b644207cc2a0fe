"""What organizers say to everybody during an on-sale: short messages, each kept in all its versions.

PostgreSQL has them first (`ledger`), Redis has the newest of each event as readers get them (`hot`), and may be away at
any time. A correction is a new version, and so is taking back; nothing that was said is ever changed. A month after the
event they are packed (`archiving`), and still read.
"""
