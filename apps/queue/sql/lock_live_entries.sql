-- Locks, in id order, the live entries of these accounts and browsers, each at the event that is given with it, and
-- returns their state under the lock.
SELECT id, event_id, number, in_lobby, account_id, visitor_id, status, claim_expires_at, admission_expires_at,
       busy_until, ended_at, marked
FROM queue_queueentry
WHERE status IN ('waiting', 'review', 'ready', 'away')
  AND id IN (
    SELECT entry.id
    FROM unnest(%(account_event_ids)s::bigint[], %(account_ids)s::bigint[]) AS asked (event_id, account_id)
    JOIN queue_queueentry AS entry ON entry.event_id = asked.event_id AND entry.account_id = asked.account_id
    WHERE entry.status IN ('waiting', 'review', 'ready', 'away')
    UNION ALL
    SELECT entry.id
    FROM unnest(%(visitor_event_ids)s::bigint[], %(visitor_ids)s::text[]) AS asked (event_id, visitor_id)
    JOIN queue_queueentry AS entry
      ON entry.event_id = asked.event_id AND entry.visitor_id = asked.visitor_id AND entry.account_id IS NULL
    WHERE entry.status IN ('waiting', 'review', 'ready', 'away')
  )
ORDER BY id
FOR NO KEY UPDATE
