-- I4: confirmed reservations of this batch without a confirmed or partly refunded order: seats sold without payment.
SELECT reservation.event_id, reservation.id, coalesce(sale.number, 'no order'), coalesce(sale.status, '')
FROM reservations_reservation AS reservation
LEFT JOIN orders_order AS sale ON sale.reservation_id = reservation.id
WHERE reservation.id > %(after)s
  AND reservation.id <= %(until)s
  AND reservation.status = 'confirmed'
  AND (%(event_id)s::bigint IS NULL OR reservation.event_id = %(event_id)s)
  AND (sale.id IS NULL OR sale.status NOT IN ('confirmed', 'partly_refunded'))
