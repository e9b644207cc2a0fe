"""The admin of waiting rooms, their recorded operations, and queue entries."""

from contextlib import contextmanager

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import redirect
from django.urls import path
from django.utils.html import format_html

from apps.accounts import facade as accounts
from apps.events.facade import OrganizerScopedAdmin
from apps.kernel import clock
from apps.kernel.admin_lists import NonAtomicFormMixin, ReadOnlyAdmin, ReasonForm, confirm_action, format_count
from apps.queue.entries import vip_links
from apps.queue.errors import ActRefused
from apps.queue.models import AdmissionBatch, QueueEntry, RateChange, RoomAct, VipLink, WaitingRoom
from apps.queue.room import operations, rate_control
from apps.queue.room.suggestion import suggest_limits
from apps.queue.room.summary import summary_of
from apps.queue.screening import review


def _by(request):
    return {"who": request.user.get_username(), "why": request.POST.get("why", "")}


@contextmanager
def _recording_refusals(request, event_id, act, wanted=""):
    """Record a refused action, and raise the refusal again."""
    try:
        yield
    except ActRefused as refused:
        if act in KINDS:
            operations.record_refusal(event_id, KINDS[act], f"{act} {wanted[:80]}", str(refused), **_by(request))
        raise


@contextmanager
def _warn_if_refused(request, name, event_id, act):
    """Record a refusal and report it as a warning, so that the other selected rows are still changed."""
    try:
        with _recording_refusals(request, event_id, act, str(name)):
            yield
    except ActRefused as refused:
        messages.warning(request, f"{name}: {refused}.")


class RoomActForm(ReasonForm):
    count = forms.IntegerField(required=False, min_value=1, max_value=operations.ADMIT_MAX, label="Visitors to admit")


class RoomForm(forms.ModelForm):
    """Validates limits, so that errors appear beside their fields. Refused limits are recorded like other refusals."""

    who = ""
    """The user who submits the form."""

    def clean(self):
        super().clean()
        cleaned = self.cleaned_data
        for name in operations.LIMITS.keys() & cleaned.keys():
            try:
                operations.require_limits({name: cleaned[name]})
            except ActRefused as refused:
                self._refuse(name, refused)
        # Only a changed floor is checked. If the rate is lowered below the floor, it is never reduced automatically.
        if "rate_floor" in self.changed_data and {"rate_floor", "rate_per_second"} <= cleaned.keys():
            try:
                rate_control.require_floor(cleaned["rate_floor"], cleaned["rate_per_second"])
            except ActRefused as refused:
                self._refuse("rate_floor", refused)
        return cleaned

    def _refuse(self, name, refused):
        self.add_error(name, f"{str(refused).capitalize()}.")
        wanted = f"{name} {self.data.get(name, '')[:40]}"
        operations.record_refusal(self.instance.pk, RoomAct.What.LIMITS, wanted, str(refused), who=self.who)


# The actions on a room's page that change its state, by their names in requests.
STATES = {
    "pause": WaitingRoom.State.PAUSED,
    "resume": WaitingRoom.State.OPEN,
    "drain": WaitingRoom.State.DRAINED,
    "switch_off": WaitingRoom.State.OFF,
}
KINDS = {
    **dict.fromkeys(STATES, RoomAct.What.STATE),
    "admit_now": RoomAct.What.ADMIT,
    "message": RoomAct.What.MESSAGE,
    "clear_message": RoomAct.What.MESSAGE,
    "let_through": RoomAct.What.LET_THROUGH,
    "remove": RoomAct.What.REMOVE,
    "revoke": RoomAct.What.LINK,
    "end_review": RoomAct.What.REVIEW,
}
"""The recorded kind of each action."""
CONFIRMATIONS = {
    "drain": ("Drain?", "Drain", "all waiting visitors see that the line is closed"),
    "switch_off": (
        "Switch the waiting room off?",
        "Switch off",
        "all waiting visitors are admitted at once, without any cap",
    ),
}


@admin.register(WaitingRoom)
class WaitingRoomAdmin(OrganizerScopedAdmin, NonAtomicFormMixin, admin.ModelAdmin):
    list_display = [
        "event", "state", "rate_per_second", "rate_now", "rate_floor", "active_max", "claim_seconds",
        "admission_seconds", "head",
    ]  # fmt: skip
    list_filter = ["state"]
    list_select_related = ["event"]
    search_fields = ["event__slug", "event__name"]
    # Numbers are assigned under the row's lock, and actions change the state; a form would overwrite both.
    fields = [
        "event", "rate_per_second", "rate_floor", "active_max", "claim_seconds", "admission_seconds", "screening",
        "review_score",
    ]  # fmt: skip
    readonly_fields = ["event"]
    form = RoomForm
    change_form_template = "admin/queue/room.html"
    action_form = RoomActForm
    actions = ["pause", "resume", "drain", "switch_off", "admit_now"]

    def get_urls(self):
        act = path("<int:event_id>/act/", self.admin_site.admin_view(self.act), name="queue_waitingroom_act")
        return [act, *super().get_urls()]

    def change_view(self, request, object_id, form_url="", extra_context=None):
        context = {**(extra_context or {})}
        row = self.get_object(request, object_id)
        if row is not None:
            room = summary_of(row.pk)
            context |= {
                "room": room,
                "suggestion": suggest_limits(row.pk),
                "moves": operations.STATE_TRANSITIONS.get(room.state, ()),
                "may_move_people": request.user.has_perm("queue.change_queueentry", row.event),
                "may_make_links": request.user.has_perm("queue.add_viplink", row.event),
            }
        return super().change_view(request, object_id, form_url, context)

    def get_form(self, request, obj=None, change=False, **kwargs):
        form = super().get_form(request, obj, change=change, **kwargs)
        return type(form.__name__, (form,), {"who": request.user.get_username()})

    def save_model(self, request, obj, form, change):
        # Save only the changed fields: joins and ticks update this row all the time.
        wanted = {name: form.cleaned_data[name] for name in form.changed_data if name in operations.LIMITS}
        if wanted:
            operations.set_limits(obj.pk, **wanted, who=request.user.get_username())
        if "rate_floor" in form.changed_data:
            rate_control.set_floor(obj.pk, form.cleaned_data["rate_floor"], who=request.user.get_username())

        changed = {"screening", "review_score"} & set(form.changed_data)
        if changed:
            when = form.cleaned_data["screening"] if "screening" in changed else None
            score = (form.cleaned_data["review_score"] or 0) if "review_score" in changed else None
            review.set_screening(obj.pk, when=when, review_score=score, who=request.user.get_username())

    def changeform_view(self, request, *args, **kwargs):
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ActRefused as refused:  # A concurrent change has made the valid form invalid.
            event_id = int(kwargs.get("object_id") or args[0])
            operations.record_refusal(event_id, RoomAct.What.LIMITS, "limits", str(refused), **_by(request))
            messages.error(request, f"{str(refused).capitalize()}.")
            return redirect(request.path)

    def has_add_permission(self, request):
        return False

    def has_delete_permission(self, request, obj=None):
        return False

    def act(self, request, event_id):
        """Run an action on one room and return to its page."""
        room = self.get_object(request, str(event_id))
        if room is None:
            raise Http404
        if not self.has_change_permission(request, room):
            raise PermissionDenied
        back = redirect("admin:queue_waitingroom_change", event_id)
        if request.method != "POST":
            return back
        act = request.POST.get("action", "")
        if act in CONFIRMATIONS:
            question = self._ask_confirmation(request, WaitingRoom.objects.filter(pk=event_id), act)
            if question is not None:
                return question
        wanted = request.POST.get("whom", "") if act in ("let_through", "remove") else request.POST.get("count", "")
        try:
            with _recording_refusals(request, room.pk, act, wanted):
                message = self._perform_act(request, room, act, _by(request))
        except ActRefused as refused:
            messages.error(request, f"{str(refused).capitalize()}.")
        else:
            messages.success(request, message)
        return back

    def _perform_act(self, request, room, act, by):
        get = request.POST.get
        if act in STATES:
            state = STATES[act]
            operations.set_state(room.pk, state, **by)
            return f"The room is {state}."
        if act == "admit_now":
            admitted = operations.admit_now(room.pk, _parse_count(get("count", "")), **by)
            return f"{format_count(admitted, 'visitor')} admitted."
        if act in ("message", "clear_message"):
            text = get("message", "") if act == "message" else ""
            if not operations.set_message(room.pk, text, **by):
                return "The message is unchanged."
            return "Waiting visitors now see the message." if text.strip() else "The message was removed."
        if act in ("let_through", "remove"):
            if not request.user.has_perm("queue.change_queueentry", room.event):
                raise PermissionDenied
            name = get("whom", "").strip()
            entry_id = operations.find_entry_id(room.pk, name)
            if act == "remove":
                return f"{name} {'was removed' if operations.remove(entry_id, **by) else 'had ended already'}."
            is_admitted = operations.let_through(entry_id, **by)
            return f"{name} {'is admitted' if is_admitted else 'has priority and is admitted when a slot is free'}."
        raise ActRefused("choose an action; nothing was changed")

    def _ask_confirmation(self, request, queryset, act):
        title, button, then = CONFIRMATIONS[act]
        return confirm_action(
            self, request, queryset.select_related("event"), title=title, button=button,
            effect=lambda room: (str(room.event), f"{then} ({summary_of(room.pk).waiting_words} waiting now)"),
            carry={"why": request.POST.get("why", "")[:200]},
        )  # fmt: skip

    def _set_state(self, request, queryset, act):
        state = STATES[act]
        for room in queryset:
            with _warn_if_refused(request, room.event, room.pk, act):
                operations.set_state(room.pk, state, **_by(request))
                messages.info(request, f"{room.event}: {state}.")

    @admin.action(description="Pause admission", permissions=["change"])
    def pause(self, request, queryset):
        self._set_state(request, queryset, "pause")

    @admin.action(description="Open, or resume", permissions=["change"])
    def resume(self, request, queryset):
        self._set_state(request, queryset, "resume")

    @admin.action(description="Drain: close the line", permissions=["change"])
    def drain(self, request, queryset):
        return self._ask_confirmation(request, queryset, "drain") or self._set_state(request, queryset, "drain")

    @admin.action(description="Switch off: admit all waiting visitors at once", permissions=["change"])
    def switch_off(self, request, queryset):
        return self._ask_confirmation(request, queryset, "switch_off") or self._set_state(
            request, queryset, "switch_off"
        )

    @admin.action(description="Admit visitors now, within the caps", permissions=["change"])
    def admit_now(self, request, queryset):
        for room in queryset:
            with _warn_if_refused(request, room.event, room.pk, "admit_now"):
                count = operations.admit_now(room.pk, _parse_count(request.POST.get("count", "")), **_by(request))
                messages.info(request, f"{room.event}: {count} admitted.")


def _parse_count(text):
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise ActRefused("enter how many visitors to admit")
    return int(text)


@admin.register(QueueEntry)
class QueueEntryAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = [
        "number", "event", "status", "score", "reasons", "marked", "account", "visitor_id", "joined_at",
        "admission_expires_at",
    ]  # fmt: skip
    list_filter = ["status", "marked", "event"]
    list_select_related = ["event", "account"]
    search_fields = ["=id", "=visitor_id", "=account__username"]
    search_help_text = "Searches for a complete entry's id, visitor's id or username."
    ordering = ["-joined_at"]
    action_form = ReasonForm
    actions = ["end_review", "let_through", "remove"]
    action_permissions = {"remove": "queue.change_queueentry"}

    @admin.action(description="End the review: these visitors wait in line with their numbers", permissions=["remove"])
    def end_review(self, request, queryset):
        ended = 0
        for entry in queryset.select_related(None):
            with _warn_if_refused(request, f"Number {entry.number}", entry.event_id, "end_review"):
                review.end_review(entry.pk, **_by(request))
                ended += 1
        messages.info(request, f"{format_count(ended, 'review')} ended.")

    @admin.action(description="Give these visitors priority over all others", permissions=["remove"])
    def let_through(self, request, queryset):
        for entry in queryset.select_related(None):
            with _warn_if_refused(request, f"Number {entry.number}", entry.event_id, "let_through"):
                is_admitted = operations.let_through(entry.pk, **_by(request))
                result = "admitted" if is_admitted else "has priority and is admitted when a slot is free"
                messages.info(request, f"Number {entry.number}: {result}.")

    def has_remove_permission(self, request):
        return request.user.has_perm("queue.change_queueentry")

    @admin.action(description="Remove these visitors from the line", permissions=["remove"])
    def remove(self, request, queryset):
        removed = 0
        for entry in queryset.select_related(None):
            with _warn_if_refused(request, f"Number {entry.number}", entry.event_id, "remove"):
                removed += operations.remove(entry.pk, **_by(request))
        messages.info(request, f"{format_count(removed, 'visitor')} removed from the line.")


@admin.register(AdmissionBatch)
class AdmissionBatchAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["at", "event", "reason", "from_number", "to_number", "count", "active_count", "active_max", "epoch"]
    list_filter = ["reason", "event"]
    list_select_related = ["event"]


@admin.register(RoomAct)
class RoomActAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    row_names = ("waiting-room log entry", "waiting-room log entries")
    list_display = ["at", "event", "who", "what", "detail", "why", "refusal"]
    list_filter = ["what", ("refusal", admin.EmptyFieldListFilter), "event"]
    list_select_related = ["event"]


@admin.register(RateChange)
class RateChangeAdmin(OrganizerScopedAdmin, ReadOnlyAdmin):
    list_display = ["at", "event_name", "from_rate", "to_rate", "reason"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["reason"]

    @admin.display(description="event", ordering="event")
    def event_name(self, change):
        # Django never wraps the column of a relation, so a long name would hide the reason. It wraps a method's column.
        return str(change.event)


class LinkForm(forms.ModelForm):
    hours = forms.IntegerField(
        min_value=1, max_value=vip_links.HOURS_MAX, initial=vip_links.HOURS_DEFAULT, label="Valid for (hours)"
    )

    class Meta:
        model = VipLink
        fields = ["event", "note"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        events = self.fields["event"]
        assert isinstance(events, forms.ModelChoiceField)
        assert events.queryset is not None
        events.queryset = events.queryset.filter(waiting_room__isnull=False)

    def clean_note(self):
        note = self.cleaned_data["note"].strip()
        if not note.isprintable():
            raise forms.ValidationError("Enter one line of plain text.")
        return note


@admin.register(VipLink)
class VipLinkAdmin(OrganizerScopedAdmin, accounts.SensitiveAdminMixin, NonAtomicFormMixin, ReadOnlyAdmin):
    list_display = ["created_at", "event", "note", "state", "expires_at", "used_at", "created_by"]
    list_filter = ["event"]
    list_select_related = ["event"]
    search_fields = ["=id", "note"]
    action_form = ReasonForm
    actions = ["revoke"]
    action_permissions = {"revoke": "queue.change_viplink"}

    def has_add_permission(self, request):
        return request.user.has_perm("queue.add_viplink")

    def has_revoke_permission(self, request):
        return request.user.has_perm("queue.change_viplink")

    def get_form(self, request, obj=None, change=False, **kwargs):
        if obj is None:
            return self.confine_form(request, LinkForm)
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fields(self, request, obj=None):
        if obj is None:
            return ["event", "note", "hours"]
        # Only users who may create links of this event see their addresses.
        address = ["address"] if request.user.has_perm("queue.add_viplink", obj.event) else []
        return ["event", "note", "state", *address, "expires_at", "created_by", "created_at", "revoked_at", "used_at",
                "entry"]  # fmt: skip

    def get_readonly_fields(self, request, obj=None):
        return [] if obj is None else self.get_fields(request, obj)

    def save_model(self, request, obj, form, change):
        link = vip_links.make_link(
            form.cleaned_data["event"].pk,
            note=form.cleaned_data["note"],
            hours=form.cleaned_data["hours"],
            who=request.user.get_username(),
        )
        obj.__dict__.update(link.__dict__)

    def response_add(self, request, obj, post_url_continue=None):
        messages.success(
            request, "The link was created. Copy its address: it works once, for the first person who opens it."
        )
        return redirect("admin:queue_viplink_change", obj.pk)

    @admin.display(description="state")
    def state(self, link):
        return vip_links.state_of(link, clock.now())

    @admin.display(description="address")
    def address(self, link):
        if self.state(link) != "open":
            return "–"
        return format_html("<code>{}</code>", vip_links.address_of(link, link.event.slug))

    @admin.action(description="Revoke these links", permissions=["revoke"])
    @accounts.sensitive_action
    def revoke(self, request, queryset):
        revoked = 0
        for link in queryset.select_related(None):
            with _warn_if_refused(request, link, link.event_id, "revoke"):
                revoked += vip_links.revoke_link(link.pk, **_by(request))
        messages.info(request, f"{format_count(revoked, 'link')} revoked.")
