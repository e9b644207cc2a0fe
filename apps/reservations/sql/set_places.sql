-- Says how one locked general-admission row stands.
UPDATE reservations_generaladmissioninventory
SET taken = %(taken)s, blocked = %(blocked)s, house = %(house)s
WHERE section_id = %(section_id)s
