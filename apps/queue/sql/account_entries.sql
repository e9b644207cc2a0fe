-- The live entries of these accounts, each at the event that is given with the account.
SELECT entry.event_id, entry.account_id, entry.id
FROM unnest(%(event_ids)s::bigint[], %(account_ids)s::bigint[]) AS asked (event_id, account_id)
JOIN queue_queueentry AS entry
  ON entry.event_id = asked.event_id
 AND entry.account_id = asked.account_id
 AND entry.account_id IS NOT NULL
 AND entry.status IN ('waiting', 'review', 'ready', 'away')
