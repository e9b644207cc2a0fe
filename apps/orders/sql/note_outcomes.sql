-- Store the outcome of these provider messages, as `note_outcome` does.
UPDATE orders_providermessage
SET outcome = %(outcome)s, processed_at = clock_timestamp(), next_action = NULL
WHERE id = ANY(%(message_ids)s::bigint[])
