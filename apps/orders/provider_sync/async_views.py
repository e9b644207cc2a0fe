"""Webhooks of payment providers on the fast path. `api_views.PaymentWebhook` serves the same endpoint on the site, and
answers every delivery that is refused."""

from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from apps.orders.payments.providers import read_webhook
from apps.orders.provider_sync.event_storage import Delivery, webhooks


async def receive_webhook(request: Request, provider: str) -> Reply:
    """The fast path's version of `api_views.PaymentWebhook.post`. Raises Busy and OutcomeUnknown: the provider then
    delivers again."""
    await request.gather()
    try:
        event = read_webhook(provider, await request.body(), request.headers)
    except problems.Problem as problem:
        # The site refuses it, and counts the refusal against the sender's address.
        raise ForwardToSite from problem
    if event is not None:
        await webhooks.submit(Delivery(provider, event))
    return private_reply({"stored": True})


ROUTES = (Route("POST", "webhooks/payments/<slug>", receive_webhook, "payment-webhook", None),)
