"""Log-out: the cookies that a browser loses when its user logs out, on any page that logs out (the admin's too)."""

from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

from apps.orders import facade as orders
from apps.queue import facade as queue

_MARK = "logged_out_user"


@receiver(user_logged_out)
def note_log_out(sender: object, request: HttpRequest | None, user: Any, **kwargs: Any) -> None:
    """Mark the request, so that its response deletes the cookies."""
    if request is not None:
        setattr(request, _MARK, user)


class ForgetOrders(MiddlewareMixin):
    """Deletes the cookies of orders, doors and queue entries at log-out, so that the next user of the browser has none
    of the last one's rights."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if hasattr(request, _MARK):
            orders.delete_access_cookies(request, response)
            user = getattr(request, _MARK)
            if user is not None and user.pk is not None:
                queue.delete_place_cookies(response, user.pk)
        return response
