-- Store the outcome of a provider's message. The caller holds the lock of the message or of its order. What the buyer
-- must do is in the payment by now, which is blanked once it is settled; the message keeps no client secret.
UPDATE orders_providermessage
SET outcome = %(outcome)s, processed_at = clock_timestamp(), next_action = NULL
WHERE id = %(message_id)s
