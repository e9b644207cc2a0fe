"""The simulator: visitors, buyers and listeners that use only the public HTTP API.

It imports no app, no kernel and no Django, so it sees what any client sees. To add a behavior (another way of listening
or buying), write an Actor whose steps each make one call, and add it in `population.create_actors`.
"""
