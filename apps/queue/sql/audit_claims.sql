-- Waiting entries that have claimed an admission before: a tick would give them a second admission.
SELECT number, status
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status IN ('waiting', 'away') AND admission_expires_at IS NOT NULL
ORDER BY number
LIMIT 50
