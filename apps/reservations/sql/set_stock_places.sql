-- Writes a locked general-admission row's capacity and what of it is blocked; what is taken is not touched.
UPDATE reservations_generaladmissioninventory
SET capacity = %(capacity)s, blocked = %(blocked)s, house = %(house)s
WHERE section_id = %(section_id)s
