-- Blocks free tickets of each of these locked sections as house tickets, once per row.
UPDATE reservations_generaladmissioninventory AS row
SET blocked = row.blocked + given.quantity, house = row.house + given.quantity
FROM unnest(%(section_ids)s::bigint[], %(quantities)s::int[]) AS given (section_id, quantity)
WHERE row.section_id = given.section_id AND row.capacity - row.blocked - row.taken >= given.quantity
