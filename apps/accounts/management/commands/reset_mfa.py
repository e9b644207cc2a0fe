"""Remove all second factors of an account whose owner has lost them, and log it out everywhere."""

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts import security_log
from apps.accounts.models import User, account_name
from apps.accounts.tokens import versions
from apps.kernel.cli import get_os_username
from apps.kernel.db import transactions


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="the account's name: its email address, or a plain name of staff")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=account_name(options["user"])).first()
        if user is None:
            raise CommandError(f"No account is named {options['user']}.")
        with transactions.write():
            deleted, _ = Authenticator.objects.filter(user=user).delete()
            versions.raise_version(user)
            detail = f"{deleted} removed by the command reset_mfa, run by {get_os_username()}"
            security_log.record(None, security_log.Kind.SECOND_FACTOR_RESET, user, detail=detail)
        self.stdout.write(f"{user.username}: {deleted} second factors removed; all sessions and tokens have ended.")
