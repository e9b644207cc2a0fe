-- Sets a locked general-admission row's capacity and blocked counts, but not `taken`.
UPDATE reservations_generaladmissioninventory
SET capacity = %(capacity)s, blocked = %(blocked)s, house = %(house)s
WHERE section_id = %(section_id)s
