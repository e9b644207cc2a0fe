-- The versions of the search index.
SELECT version, generation, synonyms FROM events_searchstate
