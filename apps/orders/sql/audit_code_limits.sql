-- I5: promo codes of this batch with more uses than their limit. Uses that were restored after a late confirmation do
-- not count.
SELECT code.code, code.uses_max, counted.use_count
FROM orders_promocode AS code
CROSS JOIN LATERAL (
    SELECT count(*) AS use_count
    FROM orders_codeuse AS used
    WHERE used.code_id = code.id AND used.released_at IS NULL AND used.honoured_at IS NULL
) AS counted
WHERE code.id > %(after)s
  AND code.id <= %(until)s
  AND code.uses_max IS NOT NULL
  AND counted.use_count > code.uses_max
  AND (%(event_id)s::bigint IS NULL OR code.event_id = %(event_id)s)
