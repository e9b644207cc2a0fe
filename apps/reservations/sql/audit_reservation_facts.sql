-- I1, I3, I5 and I8: reservations of this batch with an inconsistent header: an unknown status, a status without its
-- time, a payment deadline before the end of the hold, no tickets, a negative total, or no entry of the same event.
-- Entries are looked up reservation by reservation: for an EXISTS the planner reads all entries for each batch.
SELECT reservation.event_id, reservation.id, reservation.status, reservation.pay_deadline, reservation.expires_at,
       reservation.confirmed_at, reservation.ended_at, reservation.seat_count, reservation.total_minor,
       reservation.entry_id, entry.is_known
FROM reservations_reservation AS reservation
CROSS JOIN LATERAL (
    SELECT count(*) > 0 AS is_known
    FROM queue_queueentry
    WHERE id = reservation.entry_id AND event_id = reservation.event_id
) AS entry
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
  AND (reservation.status NOT IN ('pending_payment', 'paying', 'confirmed', 'canceled', 'expired')
       OR (reservation.status = 'paying' AND reservation.pay_deadline IS NULL)
       OR reservation.pay_deadline < reservation.expires_at
       OR (reservation.status = 'confirmed' AND reservation.confirmed_at IS NULL)
       OR (reservation.status IN ('canceled', 'expired') AND reservation.ended_at IS NULL)
       OR reservation.seat_count < 1
       OR reservation.total_minor < 0
       OR NOT entry.is_known)
