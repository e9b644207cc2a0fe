-- Makes the pages of the postings visible to index-only scans, and updates the planner's statistics.
VACUUM (ANALYZE) events_searchposting
