-- I1 and I2: seats of this batch whose inventory row is inconsistent with itself or the plan: blocked without a reason
-- or free with one, free with a reservation or held without one, in another section or event than the seat, or with
-- another location or price than the seat's.
SELECT row.seat_id, row.event_id, row.status, row.blocked_for, row.reservation_id, row.section_id, seat.section_id,
       (row.category_id, row.row_index, row.place_index, row.rank, row.accessible, row.companion)
           IS DISTINCT FROM
       (seat.category_id, seat.row_index, seat.place_index, seat.rank, seat.accessible, seat.companion)
FROM reservations_seatinventory AS row
LEFT JOIN events_seat AS seat ON seat.id = row.seat_id
WHERE row.seat_id > %(after)s
  AND row.seat_id <= %(until)s
  AND (row.status NOT BETWEEN 0 AND 3
       OR (row.status = 3) <> (row.blocked_for IN ('house', 'out_of_use'))
       OR (row.status <> 3 AND row.blocked_for <> '')
       OR (row.status IN (1, 2)) <> (row.reservation_id IS NOT NULL)
       OR row.section_id IS DISTINCT FROM seat.section_id
       OR row.event_id IS DISTINCT FROM seat.event_id
       OR (row.category_id, row.row_index, row.place_index, row.rank, row.accessible, row.companion)
              IS DISTINCT FROM
          (seat.category_id, seat.row_index, seat.place_index, seat.rank, seat.accessible, seat.companion))
