-- Stores the seed and reveals the secret. The caller holds the draw's lock.
UPDATE queue_draw
SET seed = %(seed)s, is_operator_proof = %(is_operator_proof)s, revealed_at = clock_timestamp()
WHERE event_id = %(event_id)s AND revealed_at IS NULL
