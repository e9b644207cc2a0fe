"""Stages of a log-in between the password and the start of the session."""

from allauth.account.stages import EmailVerificationStage
from django.http import HttpResponse


class ConfirmedAddressStage(EmailVerificationStage):
    """Requires a confirmed address if the setting says so. Staff are exempt: an administrator has created their
    accounts, with or without an address, and they have second factors."""

    def handle(self) -> tuple[HttpResponse | None, bool]:
        if self.login.user is not None and self.login.user.is_staff:
            return None, True
        handled: tuple[HttpResponse | None, bool] = super().handle()
        return handled
