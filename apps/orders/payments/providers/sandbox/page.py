"""The sandbox's confirmation page, which plays the buyer's bank. It exists only where the sandbox is configured.

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

from django.conf import settings
from django.core.signing import BadSignature
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.kernel.http import problems
from apps.orders.absolute_urls import strip_site_origin
from apps.orders.payments.providers.sandbox import books, messages
from apps.orders.payments.providers.sandbox.provider import NAME

_DECISIONS = {"approve": "succeeded", "decline": "declined"}


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def pay(request: HttpRequest, token: str) -> HttpResponse:
    """Show the charge; on POST record the buyer's decision and redirect back to the order."""
    if settings.PAYMENT_PROVIDER != NAME:
        raise problems.NotFound
    try:
        charge_id = messages.parse_page_token(token)
    except (BadSignature, ValueError) as error:
        raise problems.NotFound from error
    decision = _DECISIONS.get(request.POST.get("decision", ""))
    if request.method == "POST" and decision is not None:
        charge = books.decide(charge_id, decision)
        if charge is not None and charge.return_url:
            return HttpResponseRedirect(strip_site_origin(charge.return_url), status=303)
    charge = books.find_by_pk(charge_id)
    if charge is None:
        raise problems.NotFound
    context = {"charge": charge, "return_url": strip_site_origin(charge.return_url)}
    return render(request, "orders/sandbox_pay.html", context)
