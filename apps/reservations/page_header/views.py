"""The page behind "Your seats": for browsers without scripts, whose pages show no hold."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from apps.queue import facade as queue
from apps.reservations.page_header import held_tickets


@never_cache
@require_safe
def held(request: HttpRequest) -> HttpResponse:
    """Show the browser's holds; a single live one by its own page."""
    caller = queue.authenticate(request)
    found = held_tickets.find_held_tickets(caller, held_tickets.named_reservations(request.COOKIES))
    live = [one for one in found if one.is_live]
    if len(live) == 1:
        return redirect("reservations:reservation", live[0].id)
    return render(request, "reservations/held.html", {"holds": found})
