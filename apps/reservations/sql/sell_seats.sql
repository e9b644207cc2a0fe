-- Marks the reservation's held, locked seats as sold. General-admission rows count held and sold tickets
-- together and are not changed.
UPDATE reservations_seatinventory
SET status = 2
WHERE reservation_id = %(reservation_id)s AND status = 1
