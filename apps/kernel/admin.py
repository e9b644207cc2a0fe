"""Read-only admin pages for audit and reconciliation results, idempotent responses and health signals."""

from django.contrib import admin
from django.db.models import F, Q
from django.utils.html import format_html, format_html_join

from apps.kernel.admin_lists import ConditionFilter, ReadOnlyAdmin
from apps.kernel.models import AuditRun, IdempotentAnswer, ReconcileRun, Signal


class Outcome(ConditionFilter):
    title = parameter_name = "outcome"
    conditions = {
        "clean": ("clean", Q(breach_count=0)),
        "breach": ("with breaches", Q(breach_count__gt=0)),
    }


class ReconcileOutcome(ConditionFilter):
    title = parameter_name = "outcome"
    _left = Q(difference_count__gt=F("repaired_count") + F("gone_count"))
    conditions = {
        "none": ("no differences", Q(difference_count=0)),
        "put_right": ("all repaired", Q(difference_count__gt=0) & ~_left),
        "left": ("differences left", _left),
    }


class _RunAdmin(ReadOnlyAdmin):
    readonly_fields = ["is_clean", "findings"]

    @admin.display(boolean=True, description="clean")
    def is_clean(self, run):
        return run.is_clean

    def findings(self, run):
        return format_html("<ul>{}</ul>", format_html_join("", "<li><b>{}</b> {}: {}</li>", map(self.line, run.report)))

    def line(self, finding):
        """Return the finding's name, its promise and its result."""
        raise NotImplementedError


@admin.register(AuditRun)
class AuditRunAdmin(_RunAdmin):
    list_display = ["started_at", "scope", "is_clean", "breach_count", "duration_ms"]
    list_filter = [Outcome, "scope"]
    fields = ["started_at", "scope", "duration_ms", "is_clean", "breach_count", "findings"]

    def line(self, finding):
        result = "; ".join(finding["breaches"]) or finding.get("unchecked") or "clean"
        return finding["invariant"], finding["promise"], result


@admin.register(ReconcileRun)
class ReconcileRunAdmin(_RunAdmin):
    list_display = [
        "started_at", "is_clean", "difference_count", "repaired_count", "gone_count", "failure_count", "repair_by",
        "duration_ms",
    ]  # fmt: skip
    list_filter = [ReconcileOutcome]
    fields = [
        "started_at", "duration_ms", "part", "repair_by", "is_clean", "difference_count", "repaired_count",
        "gone_count", "failure_count", "findings",
    ]  # fmt: skip

    def line(self, finding):
        result = "; ".join(difference["line"] for difference in finding["differences"]) or "no difference"
        if finding["failure"]:
            result = f"could not be checked: {finding['failure']}"
        return finding["check"], finding["promise"], result


@admin.register(IdempotentAnswer)
class IdempotentAnswerAdmin(ReadOnlyAdmin):
    list_display = ["scope", "key", "status", "created_at"]
    exclude = ["answer"]  # It may contain ticket codes, and the buyer's name and email address.
    list_filter = ["status"]
    search_fields = ["=scope", "=key"]
    search_help_text = "Searches for an exact scope (hold:EVENT:BUYER or checkout:…) or an exact key."


@admin.register(Signal)
class SignalAdmin(ReadOnlyAdmin):
    list_display = ["name", "value", "count", "process", "at"]
    list_filter = ["name"]
    ordering = ["name", "process"]
