-- The seats of these locked reservations, in the columns used for choosing.
SELECT reservation_id, seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
FROM reservations_seatinventory
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND status = 1
