"""Proof of work: a client computes for a moment before it may do what bots do by the thousand.

A purpose ("join", "log-in") decides when work is required and what a solution permits. This package has the mechanism:
`challenges` (Altcha's protocol), `delays` (waiting instead of computing), `arrivals` (recent requests by address and
network, which set the difficulty) and `forms` (the field of a form).

Everything here is computed in the process, without I/O. The counts are shared with other processes through Redis by the
thread of `rate_limits`; if they are lost, the configured base difficulty applies.
"""
