-- Store the outcome of a provider's message. The caller holds its lock or its order's.
UPDATE orders_providermessage
SET outcome = %(outcome)s, processed_at = clock_timestamp()
WHERE id = %(message_id)s
