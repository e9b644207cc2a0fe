-- Store the outcome of a provider's message. The caller holds the lock of the message or of its order.
UPDATE orders_providermessage
SET outcome = %(outcome)s, processed_at = clock_timestamp()
WHERE id = %(message_id)s
