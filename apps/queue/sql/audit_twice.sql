-- Accounts and browsers with more than one live entry, and numbers that more than one entry has.
SELECT 'account ' || account_id AS who, count(*)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status IN ('waiting', 'review', 'ready', 'away') AND account_id IS NOT NULL
GROUP BY account_id
HAVING count(*) > 1
UNION ALL
SELECT 'browser ' || visitor_id, count(*)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND status IN ('waiting', 'review', 'ready', 'away') AND account_id IS NULL
GROUP BY visitor_id
HAVING count(*) > 1
UNION ALL
SELECT 'number ' || number, count(*)
FROM queue_queueentry
WHERE event_id = %(event_id)s AND number IS NOT NULL
GROUP BY number
HAVING count(*) > 1
