-- What staff, repairs and compensations did to this seat, in order.
SELECT kind, detail, who, why, at
FROM reservations_inventorychange
WHERE seat_id = %(seat_id)s
ORDER BY id
