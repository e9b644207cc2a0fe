"""A crowd at the door: visitors, buyers and listeners that know nothing of this house but its public HTTP API.

It imports no app, no kernel and no Django, so what it finds is what a stranger would find. To teach it something new
(another way of listening, another way of buying): an Actor whose steps each make one call, added in
`population.create_actors`.
"""
