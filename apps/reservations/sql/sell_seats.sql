-- The reservation's held, locked seats are sold. The general-admission row is not touched: it counts both together.
UPDATE reservations_seatinventory
SET status = 2
WHERE reservation_id = %(reservation_id)s AND status = 1
