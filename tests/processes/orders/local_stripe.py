"""localstripe as a program for tests: it prints its port and serves until it is stopped.

`python -m tests.processes.orders.local_stripe` runs it.

It is the package's server, extended by the parts of Stripe's protocol that our provider needs:

- idempotency keys: the same key and body get the same response; the same key with another body is refused
- `description` and `allowed_payment_method_types` of an intent; its metadata copied to its charge; `amount_received`
- `created` ranges in the lists of charges and refunds; the search for an intent by its metadata
- the webhooks `payment_intent.canceled` and `refund.created`

Its webhooks carry the package's signature, which follows Stripe's scheme. It leaves no files behind.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from localstripe import resources, server, webhooks
from localstripe.errors import UserError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
REFUSED_CURRENCY = "irr"
_answers: dict[str, tuple[str, int, bytes]] = {}


def refused(status: int, kind: str, text: str) -> web.Response:
    return web.json_response({"error": {"type": kind, "message": text}}, status=status)


@web.middleware
async def remembers_keys(request: web.Request, handler: Handler) -> web.StreamResponse:
    key = request.headers.get("Idempotency-Key", "")
    if request.method != "POST" or not key:
        return await handler(request)
    fingerprint = f"{request.path} {await request.text()}"
    if key not in _answers:
        answer = await handler(request)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        _answers.setdefault(key, (fingerprint, answer.status, answer.body))
    known, status, body = _answers[key]
    if known != fingerprint:
        return refused(
            400, "idempotency_error", "Keys for idempotent requests can only be used with the same parameters."
        )
    return web.Response(body=body, status=status, content_type="application/json")


class Intent(resources.PaymentIntent):
    """Replaces the package's resource at /v1/payment_intents."""

    object = "payment_intent"
    _id_prefix = "pi_"

    def __init__(self, description: Any = None, allowed_payment_method_types: Any = None, **rest: Any) -> None:
        if rest.get("currency") == REFUSED_CURRENCY:
            raise UserError(400, f"Invalid currency: {REFUSED_CURRENCY}")
        super().__init__(**rest)
        self.description = description

    def _create_charge(self, on_failure_now: Any) -> None:
        try:
            super()._create_charge(on_failure_now)
        finally:
            if self.latest_charge is not None:
                self.latest_charge.metadata = dict(self.metadata)

    @property
    def amount_received(self) -> int:
        return int(self.amount) if self.status == "succeeded" else 0

    @classmethod
    def _api_cancel(cls, id: str, **rest: Any) -> Any:
        intent = resources.PaymentIntent._api_cancel.__func__(cls, id, **rest)
        intent.canceled_at = intent.created
        webhooks.schedule_webhook(resources.Event("payment_intent.canceled", intent))
        return intent


def send_refund_webhooks() -> None:
    begun = resources.Refund.__init__

    def begin(self: Any, **rest: Any) -> None:
        begun(self, **rest)
        if self.payment_intent is None:
            self.payment_intent = resources.Charge._api_retrieve(self.charge).payment_intent
        webhooks.schedule_webhook(resources.Event("refund.created", self))

    resources.Refund.__init__ = begin


def ranged(cls: Any) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return a handler that lists a resource, newest first, by creation time and intent, in pages."""

    async def answer(request: web.Request) -> web.Response:
        least, below = (int(request.query.get(f"created[{name}]", 0)) for name in ("gte", "lt"))
        intent, after = request.query.get("payment_intent"), request.query.get("starting_after")
        rows = [row for key, row in resources.store.items() if key.startswith(f"{cls.object}:")]
        rows = [row for row in rows if row.created >= least and (not below or row.created < below)]
        rows = [row for row in rows if intent in (None, row.payment_intent)]
        if after:
            rows = rows[[row.id for row in rows].index(after) + 1 :]
        limit = int(request.query.get("limit", 10))
        shown = [row._export() for row in rows[:limit]]
        return server.json_response(
            {"object": "list", "url": request.path, "data": shown, "has_more": len(rows) > limit}
        )

    return answer


async def search(request: web.Request) -> web.Response:
    intents = [row for key, row in resources.store.items() if key.startswith("payment_intent:")]
    found = [row._export() for row in intents if f"'{row.metadata.get('payment')}'" in request.query["query"]]
    return server.json_response({"object": "search_result", "url": request.path, "data": found, "has_more": False})


def make() -> web.Application:
    resources.Store.dump_to_disk = lambda self: None
    send_refund_webhooks()
    # The package registered routes for its own class at import: ours must come first.
    app = web.Application(middlewares=[remembers_keys, *server.app.middlewares])
    own = (
        ("GET", "/v1/payment_intents/search", search),
        ("POST", "/v1/payment_intents", server.api_create(Intent, "")),
        ("POST", "/v1/payment_intents/{id}/confirm", server.api_extra(Intent._api_confirm, "")),
        ("POST", "/v1/payment_intents/{id}/cancel", server.api_extra(Intent._api_cancel, "")),
        ("GET", "/v1/charges", ranged(resources.Charge)),
        ("GET", "/v1/refunds", ranged(resources.Refund)),
    )
    for method, path, handler in own:
        app.router.add_route(method, path, handler)
    for route in server.app.router.routes():
        path = "" if route.resource is None else route.resource.canonical
        if route.method != "HEAD" and (route.method, path) not in {row[:2] for row in own}:
            app.router.add_route(route.method, path, route.handler)
    return app


async def serve() -> None:
    runner = web.AppRunner(make())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps(runner.addresses[0][1]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
