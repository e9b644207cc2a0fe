-- The live guest entries of these browsers, each at the event that is given with the browser.
SELECT entry.event_id, entry.visitor_id, entry.id
FROM unnest(%(event_ids)s::bigint[], %(visitor_ids)s::text[]) AS asked (event_id, visitor_id)
JOIN queue_queueentry AS entry
  ON entry.event_id = asked.event_id
 AND entry.visitor_id = asked.visitor_id
 AND entry.account_id IS NULL
 AND entry.status IN ('waiting', 'review', 'ready', 'away')
