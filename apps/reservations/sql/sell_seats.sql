-- Marks the reservation's held, locked seats as sold. The general-admission row counts both together and is not
-- changed.
UPDATE reservations_seatinventory
SET status = 2
WHERE reservation_id = %(reservation_id)s AND status = 1
