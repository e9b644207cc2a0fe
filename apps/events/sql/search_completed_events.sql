-- What a type-ahead shows of these events, without drafts.
SELECT event.id, event.slug, event.name, venue.city, venue.timezone, event.starts_at
FROM events_event AS event
JOIN events_venue AS venue ON venue.id = event.venue_id
WHERE event.id = ANY(%(ids)s::bigint[]) AND event.status <> 'draft'
