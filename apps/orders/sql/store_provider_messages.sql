-- Insert providers' messages once. Returns no row for a known message, nor for the second of two equal ones. Inserted in
-- the order of their keys, so that two lists cannot deadlock. Waits for a concurrent insert of the same message.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(providers)s::text[], %(message_ids)s::text[], %(kinds)s::text[], %(payment_ids)s::uuid[],
        %(references)s::text[], %(amounts_minor)s::bigint[], %(currencies)s::text[], %(times)s::timestamptz[],
        %(refund_keys)s::text[], %(refund_references)s::text[], %(failures)s::text[], %(dispute_references)s::text[],
        %(next_actions)s::text[], %(raws)s::bytea[]
    ) AS given (
        provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
        refund_reference, failure, dispute_reference, next_action, raw
    )
)
INSERT INTO orders_providermessage (
    provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
    refund_reference, failure, dispute_reference, next_action, raw, received_at, outcome
)
SELECT provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
       refund_reference, failure, dispute_reference, next_action::jsonb, raw, clock_timestamp(), ''
FROM given
ORDER BY provider, message_id
ON CONFLICT ON CONSTRAINT provider_message_once DO NOTHING
RETURNING provider, message_id, id, received_at
