-- Locks, in id order, the ended lobby entries without a number of these accounts and browsers, each at the event that
-- is given with it, and returns their state under the lock, and whether their score asks for a review.
SELECT id, event_id, number, in_lobby, account_id, visitor_id, status, claim_expires_at, admission_expires_at,
       busy_until, ended_at, marked,
       coalesce(
         score >= (SELECT review_score FROM queue_waitingroom AS room WHERE room.event_id = queue_queueentry.event_id),
         false
       )
FROM queue_queueentry
WHERE status NOT IN ('waiting', 'review', 'ready', 'away')
  AND in_lobby
  AND number IS NULL
  AND id IN (
    SELECT entry.id
    FROM unnest(%(account_event_ids)s::bigint[], %(account_ids)s::bigint[]) AS asked (event_id, account_id)
    JOIN queue_queueentry AS entry ON entry.event_id = asked.event_id AND entry.account_id = asked.account_id
    WHERE entry.ended_at IS NOT NULL
    UNION ALL
    SELECT entry.id
    FROM unnest(%(visitor_event_ids)s::bigint[], %(visitor_ids)s::text[]) AS asked (event_id, visitor_id)
    JOIN queue_queueentry AS entry
      ON entry.event_id = asked.event_id AND entry.visitor_id = asked.visitor_id AND entry.account_id IS NULL
    WHERE entry.ended_at IS NOT NULL
  )
ORDER BY id
FOR NO KEY UPDATE
