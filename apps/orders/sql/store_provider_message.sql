-- Insert a provider's message once. Returns no row for a known message. Waits for a concurrent insert of the same one.
INSERT INTO orders_providermessage (
    provider, message_id, kind, payment_id, reference, amount_minor, currency, occurred_at, refund_key,
    refund_reference, failure, dispute_reference, next_action, raw, received_at, outcome
)
VALUES (
    %(provider)s, %(message_id)s, %(kind)s, %(payment_id)s, %(reference)s, %(amount_minor)s, %(currency)s,
    %(occurred_at)s, %(refund_key)s, %(refund_reference)s, %(failure)s, %(dispute_reference)s,
    %(next_action)s::jsonb, %(raw)s, clock_timestamp(), ''
)
ON CONFLICT ON CONSTRAINT provider_message_once DO NOTHING
RETURNING id, received_at
