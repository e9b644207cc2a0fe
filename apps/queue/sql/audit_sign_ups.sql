-- Accounts and browsers with more entries in a draw by sign-up than sign-ups. Not counted: entries with priority, those
-- of VIP links, and those whose owner was erased.
SELECT count(*),
       coalesce('account ' || entry.account_id, 'browser ' || entry.visitor_id)
FROM queue_queueentry AS entry
WHERE entry.event_id = %(event_id)s
  AND entry.in_lobby
  AND entry.marked = ''
  AND entry.visitor_id NOT LIKE 'erased-%%'
  AND NOT EXISTS (SELECT FROM queue_viplink AS link WHERE link.entry_id = entry.id)
GROUP BY entry.account_id, entry.visitor_id
HAVING count(*) > (
    SELECT count(*) FROM queue_signup WHERE event_id = %(event_id)s AND account_id = entry.account_id
)
LIMIT 50
