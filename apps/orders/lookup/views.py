"""The page "Find my order".

POST needs no CSRF token: `apps.kernel.http.same_origin` refuses writes that come from another site.
"""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.kernel.http import problems
from apps.orders.lookup.forms import FindOrderForm
from apps.orders.lookup.order_lookup import request_order_list


@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def find(request: HttpRequest) -> HttpResponse:
    """Take an email address, and mail its orders to it. The response is the same with and without orders."""
    if request.method != "POST":
        return render(request, "orders/find.html", {"form": FindOrderForm()})
    form = FindOrderForm(request.POST)
    try:
        email = request_order_list(request, {"email": request.POST.get("email", "")})
    except problems.Invalid as invalid:
        form.refuse(invalid.extra["errors"]["email"])
        return render(request, "orders/find.html", {"form": form}, status=422)
    return render(request, "orders/find.html", {"sent_to": email})
