"""The state of an order for js/follow.js, on the pages that show the order while its payment is open."""

from apps.orders.absolute_urls import strip_site_origin
from apps.orders.models import Order, Payment
from apps.orders.selectors import OrderView


def state_summary(order: OrderView) -> str:
    """Return the state as a string. The page's script builds the same string from each update to detect changes."""
    payment = order.payment
    action = (payment.next_action or {}).get("type", "")
    return f"{order.status} {payment.state} {payment.attempt} {payment.refunded_minor} {action}"


def followed_state(order: OrderView) -> dict[str, str]:
    """Return what pages that show the order give to js/follow.js: `known`, see `state_summary`, and `follow`, which
    differs whenever the page of the order shows something else."""
    payment = order.payment
    follow = (shown_status(order), str(order.can_try_again), str(payment.attempt), str(payment.refunded_minor))
    return {"known": state_summary(order), "follow": " ".join((*follow, confirmation_url(order)))}


def shown_status(order: OrderView) -> str:
    """Return the order's status, which is `declined` while its last payment was declined."""
    is_declined = order.status == Order.Status.PLACED and order.payment.state == Payment.Status.DECLINED
    return "declined" if is_declined else str(order.status)


def confirmation_url(order: OrderView) -> str:
    """Return the URL where the buyer must confirm the payment in progress; empty if none."""
    action = order.payment.next_action
    if shown_status(order) not in Order.OPEN or action is None or action.get("type") != "redirect":
        return ""
    return strip_site_origin(action["url"])
