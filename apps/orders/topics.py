"""The outbox topics of a sale. The key is always the order's id, so one order's messages keep their order."""

CHARGE = "orders.charge"
REFUND = "orders.refund"
PROVIDER_MESSAGE = "orders.provider_message"
SEND_TICKETS = "orders.send_tickets"
SEND_REFUND_NOTICE = "orders.send_refund_notice"
