"""The kernel's admin: audit and reconciliation results, idempotent responses and health signals, all read only."""

from django.contrib import admin
from django.db.models import F
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.kernel.admin_lists import ReadOnlyAdmin
from apps.kernel.models import AuditRun, IdempotentAnswer, ReconcileRun, Signal


class Outcome(admin.SimpleListFilter):
    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request, model_admin):
        return [("clean", "clean"), ("breach", "with breaches")]

    def queryset(self, request, queryset):
        match self.value():
            case "clean":
                return queryset.filter(breach_count=0)
            case "breach":
                return queryset.filter(breach_count__gt=0)
        return queryset


@admin.register(AuditRun)
class AuditRunAdmin(ReadOnlyAdmin):
    list_display = ["started_at", "is_clean", "breach_count", "duration_ms"]
    list_filter = [Outcome]
    fields = ["started_at", "duration_ms", "is_clean", "breach_count", "findings"]
    readonly_fields = ["is_clean", "findings"]

    @admin.display(boolean=True, description="clean")
    def is_clean(self, run: AuditRun) -> bool:
        return run.is_clean

    @admin.display(description="findings")
    def findings(self, run: AuditRun) -> SafeString:
        lines = [
            (
                finding["invariant"],
                finding["promise"],
                "; ".join(finding["breaches"]) or finding.get("unchecked") or "clean",
            )
            for finding in run.report
        ]
        return format_html("<ul>{}</ul>", format_html_join("", "<li><b>{}</b> {}: {}</li>", lines))


class ReconcileOutcomeFilter(admin.SimpleListFilter):
    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request, model_admin):
        return [("none", "no differences"), ("put_right", "all repaired"), ("left", "differences left")]

    def queryset(self, request, queryset):
        left = queryset.annotate(left=F("difference_count") - F("repaired_count") - F("gone_count"))
        match self.value():
            case "none":
                return queryset.filter(difference_count=0)
            case "put_right":
                return left.filter(difference_count__gt=0, left=0)
            case "left":
                return left.filter(left__gt=0)
        return queryset


@admin.register(ReconcileRun)
class ReconcileRunAdmin(ReadOnlyAdmin):
    list_display = [
        "started_at", "is_clean", "difference_count", "repaired_count", "gone_count", "failure_count", "repair_by",
        "duration_ms",
    ]  # fmt: skip
    list_filter = [ReconcileOutcomeFilter]
    fields = [
        "started_at", "duration_ms", "part", "repair_by", "is_clean", "difference_count", "repaired_count",
        "gone_count", "failure_count", "findings",
    ]  # fmt: skip
    readonly_fields = ["is_clean", "findings"]

    @admin.display(boolean=True, description="clean")
    def is_clean(self, run: ReconcileRun) -> bool:
        return run.left_count == 0 and run.failure_count == 0

    @admin.display(description="findings")
    def findings(self, run: ReconcileRun) -> SafeString:
        lines = [
            (
                finding["check"],
                finding["promise"],
                f"could not be checked: {finding['failure']}"
                if finding["failure"]
                else "; ".join(difference["line"] for difference in finding["differences"]) or "no difference",
            )
            for finding in run.report
        ]
        return format_html("<ul>{}</ul>", format_html_join("", "<li><b>{}</b> {}: {}</li>", lines))


@admin.register(IdempotentAnswer)
class IdempotentAnswerAdmin(ReadOnlyAdmin):
    list_display = ["scope", "key", "status", "created_at"]
    list_filter = ["status"]
    search_fields = ["=scope", "=key"]
    search_help_text = "Searches for an exact scope (hold:EVENT:BUYER or checkout:…) or an exact key."


@admin.register(Signal)
class SignalAdmin(ReadOnlyAdmin):
    list_display = ["name", "value", "count", "process", "at"]
    list_filter = ["name"]
    ordering = ["name", "process"]
