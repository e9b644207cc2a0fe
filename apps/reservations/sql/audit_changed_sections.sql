-- The general-admission sections on lines of reservations with a ledger entry of a transaction of this range, and the
-- sections that staff or a repair has changed since.
SELECT line.section_id
FROM (
    SELECT DISTINCT reservation_id
    FROM reservations_reservationtransition
    WHERE transaction_id >= %(since)s AND transaction_id < %(until)s
) AS changed
JOIN reservations_reservationline AS line ON line.reservation_id = changed.reservation_id
WHERE line.seat_id IS NULL
UNION
SELECT section_id
FROM reservations_inventorychange
WHERE transaction_id >= %(since)s AND transaction_id < %(until)s AND section_id IS NOT NULL
