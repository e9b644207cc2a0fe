"""`make bench`: how much of what this machine can do at all the house really does, as ratios taken in one run.

One module for each row of the table stands under `rows`; what they share stands beside it: the houses they ask
(`houses`, `filling`), what they compare them with (`ledger_alone`, `idiomatic`, `noop`, `stock`, `nginx`), and who asks
(`wrk` in a closed loop, `arrivals` at a rate of its own).
"""
