-- I5: access codes of this batch with more reservations than their limit.
SELECT code.event_id, code.code, '', code.uses_max, counted.use_count
FROM reservations_accesscode AS code
CROSS JOIN LATERAL (
    SELECT count(*) AS use_count
    FROM reservations_reservation AS used
    WHERE used.access_code_id = code.id AND used.status IN ('pending_payment', 'paying', 'confirmed')
) AS counted
WHERE code.id > %(after)s
  AND code.id <= %(until)s
  AND code.uses_max IS NOT NULL
  AND counted.use_count > code.uses_max
  AND (%(event_id)s::bigint IS NULL OR code.event_id = %(event_id)s)
