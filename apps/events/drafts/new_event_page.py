"""The admin page that creates an event: one form, then the prices of its plan, or the checklist if all are known."""

from typing import cast

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from apps.events.drafts.new_event import NewEventForm, create_draft
from apps.events.plans import keeping_turn
from apps.events.publication import EventRefused


@require_http_methods(["GET", "HEAD", "POST"])
def new_event_page(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Show the form, or create the draft. The caller has checked the right to add events."""
    with keeping_turn(cast("int", request.user.pk)):
        return _answer(request, site)


def _answer(request: HttpRequest, site: AdminSite) -> HttpResponse:
    form = NewEventForm(request.user, request.POST, request.FILES) if request.method == "POST" else None
    if form is not None and form.is_valid():
        try:
            draft = create_draft(form.cleaned_data, form.parsed, form.plan_bytes, form.general_admission, form.prices)
        except EventRefused as error:
            form.add_error("new_venue", str(error))
        else:
            for note in draft.notes:
                messages.warning(request, note)
            if draft.is_priced:
                messages.success(request, f"{draft.name} is saved as a draft. Check it, then publish it.")
                return redirect("admin:events_publish", draft.event_id)
            messages.success(request, f"{draft.name} is saved as a draft. Enter its prices, then publish it.")
            return redirect("admin:events_prices", draft.event_id)
    context = {
        **site.each_context(request),
        "title": "Create event",
        "form": form or NewEventForm(request.user),
    }
    status = 200 if form is None else 400
    return TemplateResponse(request, "admin/events/new_event.html", context, status=status)
