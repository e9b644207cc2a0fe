-- Which of these events have a reservation past its deadline that no sweep has ended yet.
SELECT asked.event_id
FROM unnest(%(event_ids)s::bigint[]) AS asked (event_id)
WHERE EXISTS (
          SELECT 1 FROM reservations_reservation
          WHERE status = 'pending_payment' AND expires_at <= clock_timestamp() AND event_id = asked.event_id
      )
   OR EXISTS (
          SELECT 1 FROM reservations_reservation
          WHERE status = 'paying' AND pay_deadline <= clock_timestamp() AND event_id = asked.event_id
      )
