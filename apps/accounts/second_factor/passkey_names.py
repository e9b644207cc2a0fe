"""The form that renames a passkey."""

from typing import Any

from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.views import EditWebAuthnView
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse


class RenamePasskey(EditWebAuthnView):
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Rename the passkey under its lock: allauth saves the whole row, which would store a removed passkey again."""
        with transaction.atomic():
            return super().post(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Authenticator]:
        found: QuerySet[Authenticator] = super().get_queryset()
        return found.select_for_update(no_key=True) if self.request.method == "POST" else found
