"""Interest in events: views counted by rules, their trend, and the demand that organizers see before the on-sale.

rules, identities           the rules by which a view counts; digests of persons and addresses under a key of the day
intake, async_views         the beacon of an event's page: an append to a list in memory, written by group commit
log, counts, recount      the log in PostgreSQL; counts of its windows, exactly once; the same counts from the log
trend                       growth over an event's own baseline, for the catalog and the search
demand, demand_page         the organizer's page: views, searches without results, lobby, referrers, an estimate
"""
