-- The reservations with a ledger entry of a transaction of this range, and the other live ones of their admissions;
-- each with its event, buyer, address and access code.
WITH changed AS MATERIALIZED (
    SELECT DISTINCT reservation_id AS id
    FROM reservations_reservationtransition
    WHERE transaction_id >= %(since)s AND transaction_id < %(until)s
)
SELECT reservation.id, reservation.event_id, reservation.buyer, reservation.email, reservation.access_code_id
FROM changed
JOIN reservations_reservation AS reservation ON reservation.id = changed.id
UNION
SELECT other.id, other.event_id, other.buyer, other.email, other.access_code_id
FROM changed
JOIN reservations_reservation AS reservation ON reservation.id = changed.id
JOIN reservations_reservation AS other ON other.entry_id = reservation.entry_id
WHERE other.status IN ('pending_payment', 'paying')
