-- Which of these events have an overdue reservation that no sweep has ended. The clock is read once, in a subquery, so
-- that only the front of each index is read. If each row read the clock, all live reservations would be read.
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
