-- Takes tickets from each row once: the caller has added up the requests.
UPDATE reservations_generaladmissioninventory AS row
SET taken = row.taken + given.quantity
FROM unnest(%(section_ids)s::bigint[], %(quantities)s::int[]) AS given (section_id, quantity)
WHERE row.section_id = given.section_id AND row.capacity - row.blocked - row.taken >= given.quantity
