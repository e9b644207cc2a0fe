-- The entries with these ids, each with the slug of its event.
SELECT entry.id, entry.event_id, entry.number, entry.in_lobby, entry.account_id, entry.visitor_id, entry.status,
       entry.claim_expires_at, entry.admission_expires_at, entry.busy_until, entry.ended_at, entry.marked, event.slug
FROM queue_queueentry AS entry
JOIN events_event AS event ON event.id = entry.event_id
WHERE entry.id = ANY(%(entry_ids)s::uuid[])
