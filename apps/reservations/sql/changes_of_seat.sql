-- The changes of this seat by staff, repairs and compensations, in order.
SELECT kind, detail, who, why, at
FROM reservations_inventorychange
WHERE seat_id = %(seat_id)s
ORDER BY id
