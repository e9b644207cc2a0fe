-- Appends changes of the inventory: one row per seat, or per section.
INSERT INTO reservations_inventorychange (event_id, section_id, seat_id, kind, quantity, detail, who, why, refusal, at)
SELECT %(event_id)s, section_id, seat_id, %(kind)s, quantity, detail::jsonb, %(who)s, %(why)s, %(refusal)s, %(now)s
FROM unnest(%(section_ids)s::bigint[], %(seat_ids)s::bigint[], %(quantities)s::int[], %(details)s::text[])
    AS given (section_id, seat_id, quantity, detail)
