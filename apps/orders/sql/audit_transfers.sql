-- I4: transfers of this batch of orders that disagree with their tickets. An accepted transfer must have replaced the
-- offered ticket, not checked in, by its recipient's. A ticket is a recipient's only by an accepted transfer of it.
SELECT sale.number, transfer.id, 'accepted ' || (transfer.accepted_at IS NOT NULL)::text,
       'passed on ' || coalesce(given.transfer_id = transfer.id, false)::text
FROM orders_order AS sale
JOIN orders_ticket AS offered ON offered.order_id = sale.id
JOIN orders_tickettransfer AS transfer ON transfer.ticket_id = offered.id
LEFT JOIN orders_ticket AS given ON given.id = offered.successor_id AND offered.replaced_by = 'transfer'
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND ((transfer.accepted_at IS NOT NULL) <> coalesce(given.transfer_id = transfer.id, false)
       OR (transfer.accepted_at IS NOT NULL AND offered.checked_in_at IS NOT NULL))
UNION ALL
SELECT sale.number, transfer.id, 'accepted ' || (transfer.accepted_at IS NOT NULL)::text,
       'of order ' || coalesce(offered.order_id::text, 'unknown')
FROM orders_order AS sale
JOIN orders_ticket AS held ON held.order_id = sale.id AND held.transfer_id IS NOT NULL
JOIN orders_tickettransfer AS transfer ON transfer.id = held.transfer_id
JOIN orders_ticket AS offered ON offered.id = transfer.ticket_id
WHERE sale.id > %(after)s
  AND sale.id <= %(until)s
  AND (%(event_id)s::bigint IS NULL OR sale.event_id = %(event_id)s)
  AND (transfer.accepted_at IS NULL OR offered.order_id <> sale.id OR offered.order_line_id <> held.order_line_id)
