-- The versions of the search index, a sum that changes with its synonyms, and the time of this reading.
SELECT coalesce(state.version, 0), coalesce(state.generation, 0), 
       (SELECT coalesce(sum(hashtextextended(words, id)), 0)::text FROM events_synonym), clock_timestamp()
FROM (SELECT) AS always
LEFT JOIN events_searchstate AS state ON true
