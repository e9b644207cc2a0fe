-- Up to %(limit)s accepted transfers of an event's valid tickets, one for each recipient that has no mail of this
-- notice yet.
SELECT DISTINCT ON (transfer.email) transfer.id
FROM orders_ticket AS ticket
JOIN orders_order AS sale ON sale.id = ticket.order_id
JOIN reservations_reservation AS held ON held.id = sale.reservation_id
JOIN orders_tickettransfer AS transfer ON transfer.id = ticket.transfer_id
WHERE sale.event_id = %(event_id)s
  AND held.created_at <= %(held_until)s
  AND ticket.voided_at IS NULL
  AND NOT EXISTS (
      SELECT
      FROM orders_schedulemail AS mail
      JOIN orders_tickettransfer AS other ON other.id = mail.transfer_id
      WHERE mail.notice_id = %(notice_id)s AND other.email = transfer.email
  )
ORDER BY transfer.email, transfer.id
LIMIT %(limit)s
