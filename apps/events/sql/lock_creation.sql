-- Makes creators of events queue one behind the other until this transaction ends: two that name the same new venue,
-- plan or event then find each other's rows instead of breaking on them.
SELECT pg_advisory_xact_lock(hashtextextended('events.creation', 0))
