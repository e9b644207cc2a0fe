-- Appends changes of the inventory: one row per seat, or per section. `which`: the number of a change's detail, from 1.
INSERT INTO reservations_inventorychange (event_id, section_id, seat_id, kind, quantity, detail, who, why, refusal, at)
SELECT %(event_id)s, section_id, seat_id, %(kind)s, quantity, (%(details)s::jsonb[])[which], %(who)s, %(why)s,
       %(refusal)s, %(now)s
FROM unnest(%(section_ids)s::bigint[], %(seat_ids)s::bigint[], %(quantities)s::int[], %(which)s::int[])
    AS given (section_id, seat_id, quantity, which)
