"""Live updates for listeners: counts, the queue, seats for admitted buyers, and the state of their own reservations and
orders. The relay publishes what changed; each process reads what its listeners need, once for all of them."""
