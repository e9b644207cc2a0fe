-- The seats on lines of reservations with a ledger entry of a transaction of this range, and those that staff or a
-- repair has changed since.
SELECT line.seat_id
FROM (
    SELECT DISTINCT reservation_id
    FROM reservations_reservationtransition
    WHERE transaction_id >= %(since)s AND transaction_id < %(until)s
) AS changed
JOIN reservations_reservationline AS line ON line.reservation_id = changed.reservation_id
WHERE line.seat_id IS NOT NULL
UNION
SELECT seat_id
FROM reservations_inventorychange
WHERE transaction_id >= %(since)s AND transaction_id < %(until)s AND seat_id IS NOT NULL
