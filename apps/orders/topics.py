"""The outbox topics of a sale. The key is the order's id, so one order's messages keep their order; of ASK it is the
payment's, because it waits long and nothing of the order waits for it."""

CHARGE = "orders.charge"
ASK = "orders.ask"
REFUND = "orders.refund"
RECONCILE_PAYMENT = "orders.reconcile_payment"
RECONCILE_REFUND = "orders.reconcile_refund"
COMPARE_DAY = "orders.compare_day"
PROVIDER_MESSAGE = "orders.provider_message"
SEND_TICKETS = "orders.send_tickets"
SEND_FAILURE_NOTICE = "orders.send_failure_notice"
SEND_REFUND_NOTICE = "orders.send_refund_notice"
