-- I4: confirmed or partly refunded orders of this batch without a confirmed reservation, and other orders with one.
SELECT sale.number, sale.status, reservation.id, reservation.status
FROM orders_order AS sale
JOIN reservations_reservation AS reservation ON reservation.id = sale.reservation_id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (sale.status IN ('confirmed', 'partly_refunded')) <> (reservation.status = 'confirmed')
