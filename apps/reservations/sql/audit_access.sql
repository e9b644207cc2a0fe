-- I5: live and confirmed reservations of this batch in a restricted section without an access code, made after it was
-- restricted; and those with a code of another event.
SELECT reservation.event_id, reservation.id, reservation.status, section.slug, NULL
FROM reservations_reservation AS reservation
CROSS JOIN LATERAL (
    SELECT min(section.slug) AS slug
    FROM reservations_reservationline AS line
    JOIN events_section AS section ON section.id = line.section_id
    WHERE line.reservation_id = reservation.id
      AND line.live
      AND section.needs_access_since < reservation.created_at - make_interval(secs => %(known_seconds)s)
) AS section
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
  AND reservation.access_code_id IS NULL
  AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
  -- Skips the lookup of lines for most events.
  AND reservation.event_id IN (SELECT event_id FROM events_section WHERE needs_access_since IS NOT NULL)
  AND section.slug IS NOT NULL
UNION ALL
SELECT reservation.event_id, reservation.id, reservation.status, NULL, reservation.access_code_id
FROM reservations_reservation AS reservation
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
  AND reservation.access_code_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM reservations_accesscode AS code
                  WHERE code.id = reservation.access_code_id AND code.event_id = reservation.event_id)
