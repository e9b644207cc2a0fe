-- Notes what came of a provider's message, which the caller has under its lock or its order's.
UPDATE orders_providermessage
SET outcome = %(outcome)s, processed_at = clock_timestamp()
WHERE id = %(message_id)s
