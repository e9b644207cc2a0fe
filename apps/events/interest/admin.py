"""The admin of the rules by which a view counts, for operators of the whole site."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse

from apps.events.interest import rules
from apps.events.models import ViewRule
from apps.kernel.admin_lists import DeclaredFiltersMixin

LINES_MAX, LINE_CHARACTERS_MIN, LINE_CHARACTERS_MAX = 500, 3, 80


class ViewRuleForm(forms.ModelForm):
    class Meta:
        model = ViewRule
        fields = ("is_on", "number", "words")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "number" in self.fields:
            self.fields["number"].required = True

    def clean_number(self) -> int:
        number: int = self.cleaned_data["number"]
        lowest, highest = rules.NUMBERS[ViewRule.Kind(self.instance.kind)]
        if not lowest <= number <= highest:
            raise forms.ValidationError(f"Enter {lowest} to {highest:,}.")
        return number

    def clean_words(self) -> str:
        lines = [line.strip() for line in self.cleaned_data["words"].splitlines() if line.strip()]
        if len(lines) > LINES_MAX:
            raise forms.ValidationError(f"At most {LINES_MAX} lines.")
        for line in lines:
            if not LINE_CHARACTERS_MIN <= len(line) <= LINE_CHARACTERS_MAX:
                limits = f"{LINE_CHARACTERS_MIN} to {LINE_CHARACTERS_MAX} characters"
                raise forms.ValidationError(f"“{line[:LINE_CHARACTERS_MAX]}”: a line has {limits}.")
        return "\n".join(lines)


@admin.register(ViewRule)
class ViewRuleAdmin(DeclaredFiltersMixin, admin.ModelAdmin):
    form = ViewRuleForm
    list_display = ("kind", "is_on", "number")
    actions = None

    def get_fields(self, request: HttpRequest, obj: ViewRule | None = None) -> Any:
        kind = None if obj is None else obj.kind
        has_number, has_words = kind in rules.NUMBERS, kind == ViewRule.Kind.BOTS
        return ["is_on", *(["number"] if has_number else []), *(["words"] if has_words else [])]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        rules.read_rules()  # Writes the defaults of a new deployment.
        return super().changelist_view(request, extra_context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ViewRule | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ViewRule, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        rules.store_set()
