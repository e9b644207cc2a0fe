-- Sections of the event whose inventory differs from the plan or the capacity: seats of the plan, seats without an
-- inventory row, and inventory rows. A general-admission section has one row, with its capacity.
SELECT section.slug, section.kind, section.capacity, plan.seats, plan.without, rows.seats, general.capacity
FROM events_section AS section
CROSS JOIN LATERAL (
    SELECT count(*) AS seats, count(*) FILTER (WHERE row.seat_id IS NULL) AS without
    FROM events_seat AS seat
    LEFT JOIN reservations_seatinventory AS row ON row.seat_id = seat.id
    WHERE seat.section_id = section.id
) AS plan
CROSS JOIN LATERAL (
    SELECT count(*) AS seats FROM reservations_seatinventory WHERE section_id = section.id
) AS rows
LEFT JOIN reservations_generaladmissioninventory AS general ON general.section_id = section.id
WHERE section.event_id = %(event_id)s
  AND CASE section.kind
          WHEN 'reserved' THEN plan.without > 0 OR rows.seats <> section.capacity
          ELSE general.capacity IS DISTINCT FROM section.capacity
      END
ORDER BY section.id
