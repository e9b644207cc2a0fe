"""`make bench`: how the system's throughput compares with what this machine can do, as ratios measured in one run.

`rows` has one module for each row of the table. The others are shared: the deployments under test (`systems`, `fill`),
the comparisons (`baselines`), and the load generators (`load.wrk` for a closed loop, `load.arrivals` for a fixed rate).
"""
