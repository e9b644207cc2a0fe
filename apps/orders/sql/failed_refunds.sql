-- Up to %(limit)s failed refunds that were not replaced and are not listed as differences yet, oldest first.
SELECT payment.provider, refund.id, refund.order_id, refund.amount_minor, refund.currency, refund.settled_at
FROM orders_refund AS refund
JOIN orders_payment AS payment ON payment.id = refund.payment_id
WHERE refund.status = 'failed'
  AND NOT EXISTS (SELECT FROM orders_refund AS again WHERE again.replaces_id = refund.id)
  AND NOT EXISTS (
      SELECT
      FROM orders_paymentdifference AS listed
      WHERE listed.provider = payment.provider
        AND listed.kind = 'failed_refund'
        AND listed.reference = refund.id::text
  )
ORDER BY refund.settled_at
LIMIT %(limit)s
