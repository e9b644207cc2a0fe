-- Whether the order's links still have this version, and none of these codes is dead.
SELECT EXISTS (SELECT FROM orders_order WHERE id = %(order_id)s AND link_version = %(link_version)s)
   AND NOT EXISTS (SELECT FROM orders_ticket WHERE code = ANY(%(codes)s) AND voided_at IS NOT NULL)
