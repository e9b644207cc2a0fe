"""Waiting rooms, what was done to them, and the entries in their lines, for staff."""

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm

from apps.queue import rooms
from apps.queue.errors import ActRefused
from apps.queue.models import AdmissionBatch, QueueEntry, RoomAct, WaitingRoom
from ticketing.kernel.staff_lists import ReadOnlyAdmin, counted


class WhyForm(ActionForm):
    why = forms.CharField(required=False, max_length=200, label="Why")


class RoomActForm(WhyForm):
    count = forms.IntegerField(required=False, min_value=1, max_value=rooms.ADMIT_MAX, label="How many (to let in)")


@admin.register(WaitingRoom)
class WaitingRoomAdmin(admin.ModelAdmin):
    list_display = ["event", "state", "rate_per_second", "active_max", "claim_seconds", "admission_seconds", "head"]
    list_filter = ["state"]
    list_select_related = ["event"]
    search_fields = ["event__slug", "event__name"]
    # Numbers are handed out under the row's lock, and the state is moved by the actions; a form would overwrite both.
    fields = ["event", "state", "rate_per_second", "active_max", "claim_seconds", "admission_seconds", "next_number",
              "head", "supply_available", "supply_held", "supply_at", "ticked_at", "epoch"]  # fmt: skip
    readonly_fields = [
        "event", "state", "next_number", "head", "supply_available", "supply_held", "supply_at", "ticked_at", "epoch"
    ]  # fmt: skip
    action_form = RoomActForm
    actions = ["pause", "resume", "drain", "switch_off", "admit_now"]

    def save_model(self, request, obj, form, change):
        # Only what the form changed: joins and ticks move the numbers of this row all the time.
        limits = {"rate_per_second", "active_max"}
        if limits & set(form.changed_data):
            try:
                rooms.set_limits(
                    obj.pk,
                    rate_per_second=obj.rate_per_second,
                    active_max=obj.active_max,
                    who=request.user.get_username(),
                )
            except ActRefused as refused:
                messages.error(request, str(refused))
        others = [name for name in form.changed_data if name not in limits]
        if others:
            obj.save(update_fields=others)

    def has_add_permission(self, request):
        return False

    def has_delete_permission(self, request, obj=None):
        return False

    def _set_state(self, request, queryset, state):
        for room in queryset:
            try:
                rooms.set_state(room.pk, state, who=request.user.get_username(), why=request.POST.get("why", ""))
                messages.info(request, f"{room.event}: {state}.")
            except ActRefused as refused:
                messages.warning(request, f"{room.event}: {refused}.")

    @admin.action(description="Pause: let nobody in", permissions=["change"])
    def pause(self, request, queryset):
        self._set_state(request, queryset, WaitingRoom.State.PAUSED)

    @admin.action(description="Open, or go on", permissions=["change"])
    def resume(self, request, queryset):
        self._set_state(request, queryset, WaitingRoom.State.OPEN)

    @admin.action(description="Drain: tell everyone waiting that it is over", permissions=["change"])
    def drain(self, request, queryset):
        self._set_state(request, queryset, WaitingRoom.State.DRAINED)

    @admin.action(description="Switch off: let everyone in at once", permissions=["change"])
    def switch_off(self, request, queryset):
        self._set_state(request, queryset, WaitingRoom.State.OFF)

    @admin.action(description="Let so many in now, within the caps", permissions=["change"])
    def admit_now(self, request, queryset):
        text = request.POST.get("count", "")
        if not (text.isascii() and text.isdigit()) or len(text) > 9:
            messages.warning(request, "Say how many to let in.")
            return
        for room in queryset:
            try:
                count = rooms.admit_now(
                    room.pk, int(text), who=request.user.get_username(), why=request.POST.get("why", "")
                )
                messages.info(request, f"{room.event}: {count} let in.")
            except ActRefused as refused:
                messages.warning(request, f"{room.event}: {refused}.")


@admin.register(QueueEntry)
class QueueEntryAdmin(ReadOnlyAdmin):
    list_display = ["number", "event", "status", "account", "visitor_id", "joined_at", "admission_expires_at"]
    list_filter = ["status", "event"]
    list_select_related = ["event", "account"]
    search_fields = ["=id", "=visitor_id", "account__username"]
    search_help_text = "The entry's id, a browser's id, or part of an account's name."
    ordering = ["-joined_at"]
    action_form = WhyForm
    actions = ["remove"]

    def has_remove_permission(self, request):
        return request.user.has_perm("queue.change_queueentry")

    @admin.action(description="Take these visitors out of the line", permissions=["remove"])
    def remove(self, request, queryset):
        removed = 0
        for entry in queryset.select_related(None):
            try:
                removed += rooms.remove(entry.pk, who=request.user.get_username(), why=request.POST.get("why", ""))
            except ActRefused as refused:
                messages.warning(request, f"Number {entry.number}: {refused}.")
        messages.info(request, f"{counted(removed, 'visitor')} taken out of the line.")


@admin.register(AdmissionBatch)
class AdmissionBatchAdmin(ReadOnlyAdmin):
    list_display = ["at", "event", "reason", "from_number", "to_number", "count", "active_count", "active_max", "epoch"]
    list_filter = ["reason", "event"]
    list_select_related = ["event"]


@admin.register(RoomAct)
class RoomActAdmin(ReadOnlyAdmin):
    list_display = ["at", "event", "who", "what", "detail", "why"]
    list_filter = ["what", "event"]
    list_select_related = ["event"]
