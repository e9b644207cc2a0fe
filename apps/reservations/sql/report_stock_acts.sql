-- For the report of a sale: how many changes of the stock were made and refused, by kind. The rows of one change have
-- one time and operator.
SELECT kind, refusal <> '', count(DISTINCT (at, who))
FROM reservations_inventorychange
WHERE event_id = %(event_id)s AND at <= %(as_of)s
GROUP BY 1, 2
ORDER BY 1, 2
