-- The remembered answers to these keys: under the buyer's name, and under those that the entry's earlier holds were made
-- by, since who logs in is another buyer and asks again all the same.
WITH asked AS (
    SELECT *
    FROM unnest(%(scopes)s::text[], %(keys)s::text[], %(entry_ids)s::uuid[]) AS given (scope, key, entry_id)
), names AS (
    SELECT scope, key, scope AS name FROM asked
    UNION
    SELECT asked.scope, asked.key, 'hold:' || earlier.event_id || ':' || earlier.buyer
    FROM asked
    JOIN reservations_reservation AS earlier ON earlier.entry_id = asked.entry_id
)
SELECT names.scope, names.key, known.fingerprint, known.status, known.answer
FROM names
JOIN kernel_idempotentanswer AS known ON known.scope = names.name AND known.key = names.key
WHERE known.created_at > clock_timestamp() - make_interval(hours => %(remembered_hours)s)
