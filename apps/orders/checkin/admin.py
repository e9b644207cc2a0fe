"""Admin of check-in: door links for staff without an account, and the log of scans."""

from datetime import timedelta

from django.contrib import admin, messages
from django.shortcuts import redirect
from django.utils.html import format_html

from apps.accounts import facade as accounts
from apps.events.facade import OrganizerScopedAdmin
from apps.kernel import clock
from apps.kernel.admin_lists import NonAtomicFormMixin, ReadOnlyAdmin, format_count, masked
from apps.kernel.form_fields.event_form import EventForm, EventSelect
from apps.kernel.form_fields.local_time_field import LocalTimeField
from apps.orders.checkin import door_links
from apps.orders.models import DoorLink, TicketScan


class DoorLinkForm(EventForm):
    good_from = LocalTimeField(help_text="On the clock of the event's venue.")
    good_until = LocalTimeField(help_text="On the clock of the event's venue.")

    class Meta:
        model = DoorLink
        fields = ["event", "name", "door", "good_from", "good_until"]
        widgets = {"event": EventSelect}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.chosen_event is not None:
            now = clock.process_now().replace(second=0, microsecond=0)
            self.initial = {"good_from": now, "good_until": now + timedelta(hours=12), **self.initial}

    def clean(self):
        super().clean()
        begin, end = self.cleaned_data.get("good_from"), self.cleaned_data.get("good_until")
        if begin and end:
            if end <= begin:
                self.add_error("good_until", "Must be after the start.")
            elif end - begin > timedelta(days=door_links.LINK_DAYS_MAX):
                self.add_error("good_until", f"At most {door_links.LINK_DAYS_MAX} days after the start.")
            elif end <= clock.now():
                self.add_error("good_until", "Must be in the future.")
        for name in ("name", "door"):
            if not self.cleaned_data.get(name, "").isprintable():
                self.add_error(name, "Must be one line of plain text.")
        return self.cleaned_data


@admin.register(DoorLink)
class DoorLinkAdmin(OrganizerScopedAdmin, accounts.SensitiveAdminMixin, NonAtomicFormMixin, ReadOnlyAdmin):
    list_display = ["name", "event", "door", "state", "good_from", "good_until", "created_by"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["=id", "name", "door"]
    actions = ["revoke"]
    action_permissions = {"revoke": "orders.change_doorlink"}

    def has_add_permission(self, request):
        return request.user.has_perm("orders.add_doorlink")

    def has_revoke_permission(self, request):
        return request.user.has_perm("orders.change_doorlink")

    def get_form(self, request, obj=None, change=False, **kwargs):
        if obj is None:
            return self.confine_form(request, DoorLinkForm)
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fields(self, request, obj=None):
        if obj is None:
            return ["event", "name", "door", "good_from", "good_until"]
        # Only staff with the permission to create links of this event see a link's URL.
        address = ["address"] if request.user.has_perm("orders.add_doorlink", obj.event) else []
        return ["event", "name", "door", "state", *address, "good_from", "good_until", "created_by", "created_at",
                "revoked_by", "revoked_at"]  # fmt: skip

    def get_readonly_fields(self, request, obj=None):
        return [] if obj is None else self.get_fields(request, obj)

    def save_model(self, request, obj, form, change):
        data = dict(form.cleaned_data)
        link = door_links.make_link(data.pop("event").pk, **data, who=f"staff:{request.user.pk}")
        obj.__dict__.update(link.__dict__)

    def response_add(self, request, obj, post_url_continue=None):
        messages.success(request, "Door link created. Send its URL to the person at the door.")
        return redirect("admin:orders_doorlink_change", obj.pk)

    @admin.display(description="state")
    def state(self, link):
        return door_links.state_of(link, clock.now())

    @admin.display(description="address")
    def address(self, link):
        if self.state(link) not in ("open", "early"):
            return "–"
        return format_html("<code>{}</code>", door_links.link_url(link, link.event.slug))

    @admin.action(description="Revoke selected door links", permissions=["revoke"])
    @accounts.sensitive_action
    def revoke(self, request, queryset):
        revoked = sum(door_links.revoke_link(link.pk, f"staff:{request.user.pk}") for link in queryset)
        messages.success(request, f"Revoked: {format_count(revoked, 'link')}.")


@admin.register(TicketScan)
class TicketScanAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["at", "outcome", "anyway", "ticket", "door", "event", "who"]
    list_filter = ["outcome", "anyway", "event"]
    list_select_related = ["event", "ticket"]
    exclude = ["code"]
    readonly_fields = ["code_beginning"]
    code_beginning = masked("code")
    search_fields = ["=code", "=scan_id", "=who", "=ticket__order__number"]
    search_help_text = "A complete ticket code or scan id, the scanner (staff:ID, link:ID), or an order number."
