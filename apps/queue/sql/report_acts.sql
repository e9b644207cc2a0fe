-- For the report of a sale: how many acts of operators were performed and refused, by kind.
SELECT what, refusal <> '', count(*)
FROM queue_roomact
WHERE event_id = %(event_id)s AND at <= %(as_of)s AND who <> %(system)s
GROUP BY 1, 2
ORDER BY 1, 2
