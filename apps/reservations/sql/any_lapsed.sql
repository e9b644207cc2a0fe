-- Which of these events have a reservation past its deadline that no sweep has ended yet. The clock is asked once, in a
-- subquery, and the front of each index is looked at: asked by the row, every live reservation would be read.
SELECT asked.event_id
FROM unnest(%(event_ids)s::bigint[]) AS asked (event_id)
WHERE (
          SELECT true FROM reservations_reservation
          WHERE status = 'pending_payment'
            AND expires_at <= (SELECT clock_timestamp())
            AND event_id = asked.event_id
          ORDER BY expires_at
          LIMIT 1
      )
   OR (
          SELECT true FROM reservations_reservation
          WHERE status = 'paying'
            AND pay_deadline <= (SELECT clock_timestamp())
            AND event_id = asked.event_id
          ORDER BY pay_deadline
          LIMIT 1
      )
