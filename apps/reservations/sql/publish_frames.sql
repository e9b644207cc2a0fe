-- Stores these events' last frames in id order, so that two relays cannot deadlock.
INSERT INTO reservations_availabilityframe (event_id, epoch, sequence, frame, published_at)
SELECT event_id, %(epoch)s, sequence, frame, %(now)s
FROM unnest(%(event_ids)s::bigint[], %(sequences)s::bigint[], %(frames)s::text[]) AS given (event_id, sequence, frame)
ORDER BY event_id
ON CONFLICT (event_id) DO UPDATE
SET epoch = excluded.epoch, sequence = excluded.sequence, frame = excluded.frame, published_at = excluded.published_at
