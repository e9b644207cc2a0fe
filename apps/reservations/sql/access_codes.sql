-- The current state of these access codes, with their live and confirmed reservations: how many count as uses, and
-- which are overdue but not swept. Uses are counted only where there is a limit.
SELECT code.id, code.event_id, code.code, code.is_active,
       coalesce(code.valid_from > clock_timestamp(), false),
       coalesce(code.valid_until <= clock_timestamp(), false),
       ARRAY(SELECT link.section_id FROM reservations_accesscode_sections AS link WHERE link.accesscode_id = code.id),
       code.uses_max, code.uses_per_buyer_max, uses.standing, uses.lapsed
FROM reservations_accesscode AS code
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT lapsed.yes) AS standing,
           array_remove(array_agg(CASE WHEN lapsed.yes THEN reservation.id END), NULL) AS lapsed
    FROM reservations_reservation AS reservation
    CROSS JOIN LATERAL (
        SELECT CASE reservation.status
                   WHEN 'pending_payment' THEN reservation.expires_at <= clock_timestamp()
                   WHEN 'paying' THEN reservation.pay_deadline <= clock_timestamp()
                   ELSE false
               END
    ) AS lapsed (yes)
    WHERE code.uses_max IS NOT NULL
      AND reservation.access_code_id = code.id
      AND reservation.status IN ('pending_payment', 'paying', 'confirmed')
) AS uses
WHERE (code.event_id, code.code) IN (
    SELECT event_id, word FROM unnest(%(event_ids)s::bigint[], %(words)s::text[]) AS asked (event_id, word)
)
