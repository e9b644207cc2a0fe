-- Creates missing inventory rows of the event's seats, as free.
INSERT INTO reservations_seatinventory
    (seat_id, event_id, section_id, category_id, row_index, place_index, rank, accessible, companion, status)
SELECT id, event_id, section_id, category_id, row_index, place_index, rank, accessible, companion, 0
FROM events_seat
WHERE event_id = %(event_id)s
ON CONFLICT (seat_id) DO NOTHING
