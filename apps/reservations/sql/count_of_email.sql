-- The event's confirmed seats of this email address, without one reservation. Unpaid ones do not count: any visitor can
-- type any address.
SELECT coalesce(sum(seat_count), 0)
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND email = %(email)s
  AND id <> %(apart_from)s
  AND status = 'confirmed'
