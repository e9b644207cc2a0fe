-- Replace the buyer in the adjustments of these orders. The table's trigger allows no other change.
UPDATE orders_orderadjustment AS adjustment
SET who = given.buyer
FROM unnest(%(order_ids)s::uuid[], %(buyers)s::text[]) AS given (order_id, buyer)
WHERE adjustment.order_id = given.order_id AND adjustment.who SIMILAR TO '(visitor|account):%%'
