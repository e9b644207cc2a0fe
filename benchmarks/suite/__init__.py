"""`make bench`: how much of what this machine can do at all the house really does, as ratios taken in one run.

One module for each row of the table stands under `rows`; what they share stands beside it: the houses they ask
(`systems`, `fill`), what they compare them with (`baselines`), and who asks
(`load.wrk` in a closed loop, `load.arrivals` at a rate of its own).
"""
