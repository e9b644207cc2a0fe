-- The ledger of these reservations, in order.
SELECT reservation_id, to_status, who, why, at
FROM reservations_reservationtransition
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[])
ORDER BY id
