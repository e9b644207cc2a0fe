-- Serializes the creation of events until this transaction ends: two transactions that name the same new venue, plan or
-- event find each other's rows instead of failing on a unique constraint.
SELECT pg_advisory_xact_lock(hashtextextended('events.creation', 0))
