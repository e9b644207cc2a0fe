"""Admin of organizers and their members."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from apps.accounts import facade as accounts
from apps.events.models import LegalPage, Membership, Organizer
from apps.events.organizers import legal_pages
from apps.events.organizers.admin_scope import OrganizerScopedAdmin
from apps.kernel.admin_lists import ReadOnlyMixin


def _text_field(label: str) -> forms.CharField:
    return forms.CharField(
        label=f"{label}: text",
        required=False,
        max_length=legal_pages.TEXT_CHARACTERS_MAX,
        widget=forms.Textarea(attrs={"rows": 8, "cols": 100}),
        help_text="Plain text; an empty line starts a paragraph.",
    )


def _url_field(label: str) -> forms.URLField:
    return forms.URLField(
        label=f"{label}: URL",
        required=False,
        max_length=500,
        assume_scheme="https",
        help_text="The page elsewhere, instead of a text.",
    )


class OrganizerForm(forms.ModelForm):
    """An organizer with its legal pages: a text or a URL for each kind."""

    terms_text, terms_url = _text_field("Terms"), _url_field("Terms")
    privacy_text, privacy_url = _text_field("Privacy"), _url_field("Privacy")
    imprint_text, imprint_url = _text_field("Imprint"), _url_field("Imprint")

    class Meta:
        model = Organizer
        fields = ("name", "slug", "contact_email")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for kind in legal_pages.KINDS:
            current = legal_pages.current_page(self.instance.pk, kind) if self.instance.pk else None
            if f"{kind}_text" in self.fields:
                self.fields[f"{kind}_text"].initial = "" if current is None else current.text
                self.fields[f"{kind}_url"].initial = "" if current is None else current.url

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        for kind in legal_pages.KINDS:
            if data.get(f"{kind}_text") and data.get(f"{kind}_url"):
                self.add_error(f"{kind}_url", "Enter either a text or a URL.")
        return data


@admin.register(Organizer)
class OrganizerAdmin(OrganizerScopedAdmin, accounts.SensitiveAdminMixin):
    organizer_path = "pk"
    list_display = ("name", "slug", "contact_email")
    search_fields = ("name", "slug")
    form = OrganizerForm
    prepopulated_fields = {"slug": ("name",)}

    def get_readonly_fields(self, request: HttpRequest, obj: Organizer | None = None) -> tuple[str, ...]:
        return () if obj is None else ("slug",)  # Part of public URLs.

    def get_fieldsets(self, request: HttpRequest, obj: Organizer | None = None) -> Any:
        shown: list[Any] = [(None, {"fields": ("name", "slug", "contact_email")})]
        if obj is None or self.has_change_permission(request, obj):
            pages = [f"{kind}_{part}" for kind in legal_pages.KINDS for part in ("text", "url")]
            note = "Buyers accept terms and privacy notice at checkout. Each change is a new version with its time."
            shown.append(("Legal pages", {"fields": pages, "description": note}))
        return shown

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        for kind in legal_pages.KINDS:
            legal_pages.publish_page(
                form.instance,
                kind,
                text=form.cleaned_data[f"{kind}_text"].replace("\r\n", "\n").strip(),
                url=form.cleaned_data[f"{kind}_url"],
                who=request.user.get_username(),
            )

    def get_prepopulated_fields(self, request: HttpRequest, obj: Organizer | None = None) -> dict[str, Any]:
        return {"slug": ("name",)} if obj is None else {}


class MembershipForm(forms.ModelForm):
    """Names the account by its username, because a list would show every account of the site."""

    username = forms.CharField(
        max_length=accounts.NAME_LENGTH_MAX, help_text="The username of an existing account, usually its email."
    )

    class Meta:
        model = Membership
        fields = ("organizer", "username", "role")

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        # Of two concurrent additions of an account the second waits here, and then finds the membership of the first.
        users = accounts.User.objects.select_for_update(no_key=True)
        user = users.filter(username=accounts.account_name(name)).first()
        if user is None or not user.is_active:
            raise forms.ValidationError("There is no active account with this username. It must sign up first.")
        if accounts.has_unconfirmed_sign_up(user):
            # A stranger may have signed up with a colleague's address. Staff log in without a confirmed one.
            raise forms.ValidationError(
                "This account has not confirmed its email address yet. Ask your colleague to open the link in our "
                "email, or to reset the password."
            )
        self.instance.user = user
        return name

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        organizer, user_id = data.get("organizer"), self.instance.user_id
        if organizer and user_id and Membership.objects.filter(organizer=organizer, user_id=user_id).exists():
            self.add_error("username", "This account is a member already. Change its role in the list of members.")
        return data


@admin.register(Membership)
class MembershipAdmin(OrganizerScopedAdmin, accounts.SensitiveAdminMixin):
    """Members manage the memberships of their own organizers, if their role permits it. One at a time: each needs a
    recent authentication, and is recorded in the security log."""

    actions = None
    organizer_path = "organizer"
    list_display = ("user", "organizer", "role", "created_at")
    list_filter = ("role", "organizer")
    list_select_related = ("user", "organizer")
    search_fields = ("organizer__name",)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            return self.confine_form(request, MembershipForm)
        return super().get_form(request, obj, change=change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return ("organizer", "username", "role") if obj is None else ("organizer", "user", "role", "created_at")

    def get_readonly_fields(self, request: HttpRequest, obj: Membership | None = None) -> tuple[str, ...]:
        return () if obj is None else ("organizer", "user", "created_at")

    def _shows_organizer(self) -> bool:
        return False  # It is a column and a filter for all users.


@admin.register(LegalPage)
class LegalPageAdmin(OrganizerScopedAdmin, ReadOnlyMixin, admin.ModelAdmin):
    """All versions; a new one is published on the organizer's page."""

    organizer_path = "organizer"
    list_display = ("id", "published_at", "organizer", "kind", "url", "published_by")
    list_filter = ("kind", "organizer")
    list_select_related = ("organizer",)
    search_fields = ("=id",)
    search_help_text = "The number of a version, as in the orders that accepted it."

    def _shows_organizer(self) -> bool:
        return False
