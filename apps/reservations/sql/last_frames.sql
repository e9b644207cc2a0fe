-- The last frames of these events that the relay has written recently, and whether the event has free stock now.
SELECT frame.event_id, frame.frame,
       -- The lowest status is 0, free: one index lookup, however many seats there are (see changed_pages).
       coalesce((SELECT min(seat.status) FROM reservations_seatinventory AS seat
                 WHERE seat.event_id = frame.event_id) = 0, false)
       OR EXISTS (SELECT FROM reservations_generaladmissioninventory AS place
                  WHERE place.event_id = frame.event_id AND place.capacity > place.blocked + place.taken)
FROM reservations_availabilityframe AS frame
WHERE frame.event_id = ANY(%(event_ids)s::bigint[])
  AND frame.published_at > clock_timestamp() - make_interval(secs => %(seconds)s)
