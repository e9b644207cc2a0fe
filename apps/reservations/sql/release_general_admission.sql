-- Releases general-admission tickets, once per row.
UPDATE reservations_generaladmissioninventory AS row
SET taken = row.taken - given.quantity
FROM unnest(%(section_ids)s::bigint[], %(quantities)s::int[]) AS given (section_id, quantity)
WHERE row.section_id = given.section_id AND row.taken >= given.quantity
