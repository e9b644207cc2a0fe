-- I5: access codes of this batch that one buyer uses more often than their limit per buyer.
SELECT code.event_id, code.code, ' of ' || used.buyer, code.uses_per_buyer_max, count(*)
FROM reservations_accesscode AS code
JOIN reservations_reservation AS used
    ON used.access_code_id = code.id AND used.status IN ('pending_payment', 'paying', 'confirmed')
WHERE code.id > %(after)s
  AND code.id <= %(until)s
  AND code.uses_per_buyer_max IS NOT NULL
  AND (%(event_id)s::bigint IS NULL OR code.event_id = %(event_id)s)
GROUP BY code.id, used.buyer
HAVING count(*) > code.uses_per_buyer_max
