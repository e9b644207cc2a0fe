-- Loads the postings of many events.
COPY events_searchposting (term_id, number, weight) FROM STDIN
