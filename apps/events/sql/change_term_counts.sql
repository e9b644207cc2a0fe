-- Adds to the number of documents of each of these terms.
UPDATE events_searchterm AS term
SET document_count = term.document_count + change.delta
FROM unnest(%(term_ids)s::bigint[], %(deltas)s::bigint[]) AS change (term_id, delta)
WHERE term.id = change.term_id
