"""Admin of webhook endpoints, feed keys and webhook deliveries."""

import json

from django import forms
from django.contrib import admin, messages
from django.db.models import Q
from django.utils.html import format_html

from apps.accounts import facade as accounts
from apps.events.facade import OrganizerScopedAdmin
from apps.kernel import clock, safe_http
from apps.kernel.admin_lists import ReadOnlyAdmin, format_count, mask, masked
from apps.orders.models import FeedKey, OrganizerMessage, WebhookDelivery, WebhookEndpoint
from apps.orders.webhooks import delivery as webhook_delivery
from apps.orders.webhooks import feed, subscriber_limits


class _AudienceForm(forms.ModelForm):
    organizer_ids: frozenset[int]
    """Set for members only (apps.events.organizers.admin_scope)."""

    kinds = forms.MultipleChoiceField(
        choices=OrganizerMessage.Kind.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None selected: all kinds.",
    )

    def clean(self):
        super().clean()
        organizer, event = self.cleaned_data.get("organizer"), self.cleaned_data.get("event")
        if organizer is not None and event is not None:
            self.add_error("event", "Choose either an organizer or an event.")
        elif organizer is None and event is None and hasattr(self, "organizer_ids"):
            self.add_error("organizer", "Choose an organizer or an event.")
        return self.cleaned_data

    def require_room(self, require, field):
        """Add an error to this field unless the organizer may have one more."""
        event, organizer = self.cleaned_data["event"], self.cleaned_data["organizer"]
        owner_id = event.organizer_id if event else organizer and organizer.pk
        if owner_id is not None:
            try:
                # The admin saves the form in the same transaction, so the lock is kept until the row is stored.
                require(owner_id, self.instance.pk)
            except subscriber_limits.TooMany as refused:
                self.add_error(field, str(refused))


class EndpointForm(_AudienceForm):
    class Meta:
        model = WebhookEndpoint
        fields = ["name", "url", "organizer", "event", "kinds", "is_active"]

    def clean_url(self):
        url = self.cleaned_data["url"].strip()
        try:
            safe_http.check_url(url, webhook_delivery.allowed_targets())
        except safe_http.AddressRefused as refused:
            raise forms.ValidationError(f"Webhooks cannot be sent to this URL: {refused}.") from refused
        return url

    def clean(self):
        cleaned = super().clean()
        if self.errors or not cleaned["is_active"]:
            return cleaned
        self.require_room(subscriber_limits.require_room_for_endpoint, "is_active")
        return cleaned


class FeedKeyForm(_AudienceForm):
    scopes = forms.MultipleChoiceField(
        choices=FeedKey.Scope.choices,
        initial=[FeedKey.Scope.ORDERS],
        widget=forms.CheckboxSelectMultiple,
        help_text="What the key may do. Feeds belong to an organizer, so keys for them do, too.",
    )

    class Meta:
        model = FeedKey
        fields = ["name", "organizer", "event", "scopes", "feed", "kinds"]

    def clean(self):
        cleaned = super().clean()
        if cleaned.get("feed") and FeedKey.Scope.ORDERS in cleaned.get("scopes", ()):
            self.add_error("feed", "Messages about orders are in no feed: make another key for them.")
        if cleaned.get("organizer") is None and set(cleaned.get("scopes", ())) - {FeedKey.Scope.ORDERS}:
            self.add_error("scopes", "A key for feeds needs an organizer, and no event.")
        if not self.errors and self.instance.revoked_at is None:
            self.require_room(subscriber_limits.require_room_for_key, "name")
        return cleaned


def _audience_scope(organizer_ids, prefix=""):
    """Return the condition of the subscribers of these organizers; those of the whole site belong to none."""
    of_event, of_organizer = f"{prefix}event__organizer__in", f"{prefix}organizer__in"
    return Q(**{of_event: organizer_ids}) | Q(**{f"{prefix}event": None, of_organizer: organizer_ids})


class _AudienceAdmin(OrganizerScopedAdmin, accounts.SensitiveAdminMixin):
    list_select_related = ["event", "organizer"]

    def scope(self, organizer_ids):
        return _audience_scope(organizer_ids)

    @admin.display(description="organizer")
    def organizer_name(self, audience):
        return super().organizer_name(audience) or str(audience.organizer or "")

    @admin.display(description="kinds")
    def wanted(self, audience):
        return ", ".join(audience.kinds) or "all"

    def has_delete_permission(self, request, obj=None):
        return False  # Staff deactivate or revoke it instead, so that the log of deliveries is kept.


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(_AudienceAdmin):
    form = EndpointForm
    list_display = ["name", "url", "event", "wanted", "is_active"]
    list_filter = ["is_active", "event"]
    readonly_fields = ["secret_beginning", "created_at"]
    actions = ["renew_secret"]
    secret_beginning = masked("secret", "signing secret", shown=10)

    def get_readonly_fields(self, request, obj=None):
        return self.readonly_fields if obj else []

    def save_model(self, request, obj, form, change):
        if not change:
            obj.secret, obj.created_at = webhook_delivery.new_secret(), clock.now()
            messages.success(request, f"The signing secret of {obj.name}, which is shown only once: {obj.secret}")
        super().save_model(request, obj, form, change)

    @admin.action(description="Sign with a new secret", permissions=["change"])
    @accounts.sensitive_action
    def renew_secret(self, request, queryset):
        for endpoint in queryset:
            endpoint.secret = webhook_delivery.new_secret()
            endpoint.save(update_fields=["secret"])
            messages.success(request, f"The new secret of {endpoint.name}, which is shown only once: {endpoint.secret}")


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    organizer_path = "message__order__event__organizer"
    list_display = ["id", "endpoint", "kind", "order", "status", "attempts", "answer_status", "attempted_at"]
    list_filter = ["status", "endpoint"]
    list_select_related = ["endpoint", "message__order"]
    search_fields = ["=message__id", "=message__order__number"]
    search_help_text = "A complete message id or order number."
    fields = [
        "endpoint", "status", "attempts", "answer_status", "answer", "attempted_at", "delivered_at", "body",
    ]  # fmt: skip
    readonly_fields = ["body"]
    actions = ["replay"]
    action_permissions = {"replay": "orders.change_webhookdelivery"}

    def scope(self, organizer_ids):
        return _audience_scope(organizer_ids, "endpoint__")

    @admin.display(description="kind")
    def kind(self, delivery):
        return delivery.message.kind

    @admin.display(description="order")
    def order(self, delivery):
        return delivery.message.order.number

    @admin.display(description="message")
    def body(self, delivery):
        body = delivery.message.body
        tickets = [{**ticket, "code": mask(ticket.get("code", ""))} for ticket in body.get("tickets", ())]
        return format_html("<pre>{}</pre>", json.dumps({**body, "tickets": tickets}, indent=2, ensure_ascii=False))

    def has_replay_permission(self, request):
        return request.user.has_perm("orders.change_webhookdelivery")

    @admin.action(description="Replay: send again", permissions=["replay"])
    def replay(self, request, queryset):
        count = sum(webhook_delivery.replay(pk) for pk in queryset.values_list("pk", flat=True))
        messages.info(request, f"Sending again: {format_count(count, 'message')}.")


@admin.register(FeedKey)
class FeedKeyAdmin(_AudienceAdmin):
    form = FeedKeyForm
    list_display = ["name", "beginning", "event", "may", "wanted", "created_at", "revoked_at"]
    list_filter = ["event"]
    actions = ["revoke"]

    @admin.display(description="scopes")
    def may(self, key):
        scopes = ", ".join(key.scopes)
        return f"{scopes} (feed {key.feed})" if key.feed else scopes

    def save_model(self, request, obj, form, change):
        if not change:
            key = feed.new_key()
            obj.digest, obj.beginning, obj.created_at = feed.key_digest(key), feed.key_prefix(key), clock.now()
            messages.success(request, f"The key, which is shown only once: {key}")
        super().save_model(request, obj, form, change)

    @admin.action(description="Revoke selected feed keys", permissions=["change"])
    @accounts.sensitive_action
    def revoke(self, request, queryset):
        count = queryset.filter(revoked_at=None).update(revoked_at=clock.now())
        messages.info(request, f"Revoked: {format_count(count, 'key')}.")
