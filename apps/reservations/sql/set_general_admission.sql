-- Sets the counts of one locked general-admission row.
UPDATE reservations_generaladmissioninventory
SET taken = %(taken)s, blocked = %(blocked)s, house = %(house)s
WHERE section_id = %(section_id)s
