-- Frees these locked seats, each only if it still belongs to its reservation.
UPDATE reservations_seatinventory AS seat
SET status = 0, reservation_id = NULL
FROM unnest(%(seat_ids)s::bigint[], %(reservation_ids)s::uuid[]) AS given (seat_id, reservation_id)
WHERE seat.seat_id = given.seat_id AND seat.reservation_id = given.reservation_id AND seat.status IN (1, 2)
