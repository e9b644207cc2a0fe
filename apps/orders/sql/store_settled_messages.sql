-- Insert providers' messages with their outcomes, or store the outcome of those that are known and not processed yet.
-- Inserted in the order of their keys, so that two lists cannot deadlock. Waits for a concurrent insert of the same one.
-- The caller has locked the orders that they are about.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(providers)s::text[], %(message_ids)s::text[], %(kinds)s::text[], %(payment_ids)s::uuid[],
        %(references)s::text[], %(amounts_minor)s::bigint[], %(currencies)s::text[], %(times)s::timestamptz[],
        %(raws)s::bytea[], %(outcomes)s::text[]
    ) AS given (
        provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, raw, outcome
    )
)
INSERT INTO orders_providermessage AS message (
    provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
    refund_reference, failure, dispute_reference, next_action, raw, received_at, processed_at, outcome
)
SELECT provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, '', '', '', '', NULL, raw,
       clock_timestamp(), clock_timestamp(), outcome
FROM given
ORDER BY provider, message_id
ON CONFLICT ON CONSTRAINT provider_message_once DO UPDATE
SET processed_at = clock_timestamp(), outcome = excluded.outcome, next_action = NULL
WHERE message.processed_at IS NULL
