-- The versions of the search index, and the time of this reading.
SELECT coalesce(state.version, 0), coalesce(state.generation, 0), coalesce(state.synonyms, 0), clock_timestamp()
FROM (SELECT) AS always
LEFT JOIN events_searchstate AS state ON true
