-- The last frames of these events that the relay has written recently.
SELECT event_id, epoch, sequence, frame
FROM reservations_availabilityframe
WHERE event_id = ANY(%(event_ids)s::bigint[])
  AND published_at > clock_timestamp() - make_interval(secs => %(seconds)s)
