-- Recount the progress of an event's cancellation from its orders, and add newly ended holds to their count.
UPDATE orders_eventcancellation AS cancellation
SET orders_left = counted.open - failed.open,
    orders_failed = failed.count,
    orders_done = counted.done,
    refunded_minor = counted.refunded_minor,
    reservations_done = cancellation.reservations_done + %(reservations_more)s,
    counted_at = clock_timestamp()
FROM (
    SELECT
        count(*) FILTER (WHERE sale.status IN ('placed', 'paying', 'confirmed', 'partly_refunded')) AS open,
        count(*) FILTER (WHERE sale.reason = 'event_canceled') AS done,
        coalesce(sum(payments.refunded_minor) FILTER (WHERE sale.reason = 'event_canceled'), 0) AS refunded_minor
    FROM orders_order AS sale
    LEFT JOIN LATERAL (
        SELECT sum(refunded_minor) AS refunded_minor FROM orders_payment WHERE order_id = sale.id
    ) AS payments ON true
    WHERE sale.event_id = %(event_id)s
) AS counted,
(
    SELECT
        count(*) AS count,
        count(*) FILTER (WHERE sale.status IN ('placed', 'paying', 'confirmed', 'partly_refunded')) AS open
    FROM orders_cancellationfailure AS failure
    JOIN orders_order AS sale ON sale.id = failure.order_id
    WHERE failure.cancellation_id = %(event_id)s
      AND (
          sale.status IN ('placed', 'paying', 'confirmed', 'partly_refunded')
          OR sale.status = 'refunded' AND sale.reason <> 'event_canceled'
      )
) AS failed
WHERE cancellation.event_id = %(event_id)s
