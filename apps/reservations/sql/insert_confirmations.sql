-- Appends the ledger entry of each confirmation.
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT reservation_id, from_status, 'confirmed', who, why, %(now)s
FROM unnest(%(reservation_ids)s::uuid[], %(from_statuses)s::text[], %(whos)s::text[], %(whys)s::text[])
    AS given (reservation_id, from_status, who, why)
