-- The names of these events, without drafts.
SELECT id, slug, name
FROM events_event
WHERE id = ANY(%(ids)s::bigint[]) AND status <> 'draft'
