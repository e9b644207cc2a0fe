-- I4: confirmed reservations of this event that no order stands for: places given away without money.
SELECT reservation.id, coalesce(sale.number, 'no order'), coalesce(sale.status, '')
FROM reservations_reservation AS reservation
LEFT JOIN orders_order AS sale ON sale.reservation_id = reservation.id
WHERE reservation.event_id = %(event_id)s
  AND reservation.status = 'confirmed'
  AND (sale.id IS NULL OR sale.status NOT IN ('confirmed', 'partly_refunded'))
