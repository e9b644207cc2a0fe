-- I1, I3, I5 and I8: reservations of this batch with an inconsistent header: an unknown status, a status without its
-- time, a payment deadline before the end of the hold, no tickets, a negative total, or no entry of the same event.
SELECT event_id, id, status, pay_deadline, expires_at, confirmed_at, ended_at, seat_count, total_minor, entry_id,
       EXISTS (SELECT FROM queue_queueentry AS entry
               WHERE entry.id = reservation.entry_id AND entry.event_id = reservation.event_id) AS has_entry
FROM reservations_reservation AS reservation
WHERE id > %(after)s
  AND id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s)
  AND (status NOT IN ('pending_payment', 'paying', 'confirmed', 'canceled', 'expired')
       OR (status = 'paying' AND pay_deadline IS NULL)
       OR pay_deadline < expires_at
       OR (status = 'confirmed' AND confirmed_at IS NULL)
       OR (status IN ('canceled', 'expired') AND ended_at IS NULL)
       OR seat_count < 1
       OR total_minor < 0
       OR NOT EXISTS (SELECT FROM queue_queueentry AS entry
                      WHERE entry.id = reservation.entry_id AND entry.event_id = reservation.event_id))
