-- The seats that these locked reservations hold, as choosing reads seats.
SELECT reservation_id, seat_id, section_id, row_index, place_index, rank, category_id, accessible, companion
FROM reservations_seatinventory
WHERE reservation_id = ANY(%(reservation_ids)s::uuid[]) AND status = 1
