-- I5: email addresses of this batch with more confirmed seats than the event's cap. All reservations of an address are
-- in one batch. Unpaid ones of several buyers may exceed the cap together: their payments are checked again.
SELECT email, sum(seat_count)
FROM reservations_reservation
WHERE event_id = %(event_id)s
  AND email > %(after)s
  AND email <= %(until)s
  AND email <> ''
  AND status = 'confirmed'
GROUP BY email
HAVING sum(seat_count) > %(per_buyer_max)s
   AND (%(since)s::timestamptz IS NULL OR max(created_at) >= %(since)s)
