-- Appends one ledger entry per reservation.
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT reservation_id, from_status, %(to_status)s, who, %(why)s, %(now)s
FROM unnest(%(reservation_ids)s::uuid[], %(from_statuses)s::text[], %(whos)s::text[])
    AS given (reservation_id, from_status, who)
