"""An order's state on the fast path, which buyers poll until it is confirmed. `api_views.OrderDetail` serves the same
endpoint on the site, and decides every request that is not its owner's by account, token or browser."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply
from apps.kernel.http import problems
from apps.orders import access, selectors
from apps.queue import facade as queue


class LoadedOrder(NamedTuple):
    order: selectors.OrderView
    entry: queue.EntryView | None


def load_orders(order_ids: Sequence[uuid.UUID]) -> list[LoadedOrder | None]:
    """Return these orders in order; None for an unknown one. Blocks."""
    found = selectors.find_orders(set(order_ids))
    entries = queue.entries_by_id({order.entry_id for order in found.values()})
    return [LoadedOrder(found[one], entries.get(found[one].entry_id)) if one in found else None for one in order_ids]


_loader: BatchLoader[uuid.UUID, LoadedOrder | None] = BatchLoader(load_orders)


async def order(request: Request, order_id: str) -> Reply:
    """The fast path's version of `api_views.OrderDetail.get`."""
    if request.scope["query_string"]:
        # The link from a mail has a key.
        raise ForwardToSite
    try:
        caller = await queue.authenticate_async(request)
    except problems.Problem as problem:
        raise ForwardToSite from problem
    loaded = await _loader.ask(uuid.UUID(order_id)) if caller.is_known else None
    if loaded is None or not _is_owner(caller, loaded):
        raise ForwardToSite
    return private_reply(loaded.order.contract())


def _is_owner(caller: queue.Caller, loaded: LoadedOrder) -> bool:
    """Return whether the order is the caller's, as `access` decides."""
    order, entry = loaded
    if access.has_lost_owner(order) or caller.event_slug not in ("", order.event.slug):
        return False
    if order.account_id is not None:
        return caller.may_use_account(order.account_id)
    return entry is not None and queue.owns_without_lookup(caller, entry)


ROUTES = (Route("GET", "orders/<uuid>", order, "order", "page"),)
