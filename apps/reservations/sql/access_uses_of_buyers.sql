-- The live and confirmed reservations with an access code of each of these buyers: how many count as uses, and which
-- are overdue but not swept.
SELECT code.id, asked.buyer,
       count(*) FILTER (WHERE NOT lapsed.yes),
       array_remove(array_agg(CASE WHEN lapsed.yes THEN reservation.id END), NULL)
FROM unnest(%(event_ids)s::bigint[], %(words)s::text[], %(buyers)s::text[]) AS asked (event_id, word, buyer)
JOIN reservations_accesscode AS code ON code.event_id = asked.event_id AND code.code = asked.word
JOIN reservations_reservation AS reservation
    ON reservation.access_code_id = code.id
   AND reservation.buyer = asked.buyer
   AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
CROSS JOIN LATERAL (
    SELECT CASE reservation.status
               WHEN 'pending_payment' THEN reservation.expires_at <= clock_timestamp()
               WHEN 'paying' THEN reservation.pay_deadline <= clock_timestamp()
               ELSE false
           END
) AS lapsed (yes)
WHERE code.uses_per_buyer_max IS NOT NULL
GROUP BY code.id, asked.buyer
