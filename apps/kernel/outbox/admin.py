"""The outbox in the admin: pending, failed and given-up messages."""

from django.contrib import admin, messages
from django.db.models import Q

from apps.kernel import clock
from apps.kernel.admin_lists import ConditionFilter, ReadOnlyAdmin, format_count
from apps.kernel.outbox import facade, stored_messages
from apps.kernel.outbox.models import OutboxMessage


class State(ConditionFilter):
    title = parameter_name = "state"
    conditions = {
        "pending": ("pending", Q(done_at__isnull=True, dead_at__isnull=True)),
        "done": ("done", Q(done_at__isnull=False)),
        "dead": ("given up", Q(dead_at__isnull=False)),
    }


@admin.register(OutboxMessage)
class OutboxMessageAdmin(ReadOnlyAdmin):
    list_display = [
        "id", "topic", "key", "state", "attempts", "created_at", "available_at", "claimed_until", "is_behind",
    ]  # fmt: skip
    change_list_template = "admin/outbox/messages.html"
    list_filter = [State, "topic"]
    search_fields = ["=key"]
    search_help_text = "Searches for an exact key."
    ordering = ["-id"]
    actions = ["deliver_again"]
    one_statement_actions = ("deliver_again",)

    def changelist_view(self, request, extra_context=None):
        return super().changelist_view(request, {"standing": facade.get_status(), **(extra_context or {})})

    @admin.display(description="state")
    def state(self, message: OutboxMessage) -> str:
        if message.done_at:
            return "done"
        return "given up" if message.dead_at else "pending"

    def has_deliver_permission(self, request):
        return request.user.has_perm("outbox.change_outboxmessage")

    @admin.action(description="Deliver given-up messages again", permissions=["deliver"])
    def deliver_again(self, request, queryset):
        count = stored_messages.retry_given_up(list(queryset.values_list("pk", flat=True)), clock.now())
        facade.wake()
        messages.info(request, f"{format_count(count, 'given-up message')} will be delivered again.")
