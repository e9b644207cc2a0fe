-- Assigns each of these locked, free seats to its reservation.
UPDATE reservations_seatinventory AS seat
SET status = 1, reservation_id = given.reservation_id
FROM unnest(%(seat_ids)s::bigint[], %(reservation_ids)s::uuid[]) AS given (seat_id, reservation_id)
WHERE seat.seat_id = given.seat_id AND seat.status = 0
