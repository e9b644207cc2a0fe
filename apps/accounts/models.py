"""The accounts of customers and staff."""

from collections.abc import Collection, Iterable
from contextlib import nullcontext
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractUser
from django.contrib.auth.models import UserManager as DjangoUserManager
from django.db import DatabaseError, models, transaction
from django.db.models.functions import Lower
from django.utils.crypto import salted_hmac

from apps.accounts.browser_names import browser_name
from apps.kernel import clock
from apps.kernel.http import problems

NAME_LENGTH_MAX = 150
_VERSION_FIELDS = ("token_version", "token_version_changed_at")


def account_name(typed: str) -> str:
    """Return the name under which an account is stored: an email address in lower case, any other name unchanged."""
    name = typed.strip()
    return name.lower() if "@" in name else name


class AccountChanged(problems.Problem):
    type, status, title = "account-changed", 409, "The account has just been changed elsewhere. Nothing was saved."


class UserManager(DjangoUserManager["User"]):
    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(username=account_name(username or ""))


class User(AbstractUser):
    """An account. Its name is its email address in lower case; staff may have a plain name.

    `token_version` is the account's version. Every session, token and refresh token has the version at its creation
    and is valid for that version only. A trigger in the database raises the version whenever the password or
    `is_active` changes, whichever code changes them, and never lets it fall. The trigger also leaves an erased account
    unchanged, whichever request still writes it.
    """

    username = models.CharField(
        "name",
        max_length=NAME_LENGTH_MAX,
        unique=True,
        help_text="The email address in lower case. Staff may have a plain name.",
        error_messages={"unique": "An account with this name already exists."},
    )
    email = models.EmailField("email address", max_length=NAME_LENGTH_MAX, blank=True)
    token_version = models.PositiveIntegerField(default=0, editable=False)
    token_version_changed_at = models.DateTimeField(null=True, editable=False, db_index=True)
    erased_at = models.DateTimeField(null=True, editable=False)

    objects: ClassVar[UserManager] = UserManager()
    _stored: dict[str, Any] | None = None
    """The fields as they are in the database, as far as this object knows. None: all fields are saved."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["email"],
                condition=~models.Q(email=""),
                name="accounts_user_one_account_per_email",
                violation_error_message="An account with this email address already exists.",
            ),
            models.CheckConstraint(condition=models.Q(email=Lower("email")), name="accounts_user_email_in_lower_case"),
        ]

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **more: Any) -> "User":
        user = super().from_db(db, field_names, values, **more)
        user._keep_stored(field_names)
        return user

    def refresh_from_db(
        self, using: str | None = None, fields: Iterable[str] | None = None, from_queryset: Any = None
    ) -> None:
        names = None if fields is None else list(fields)
        super().refresh_from_db(using, names, from_queryset)
        self._keep_stored(self._loaded_fields() if names is None else names)

    def save(self, *args: Any, update_fields: Iterable[str] | None = None, **kwargs: Any) -> None:
        """Save the account. Of one that was read, only fields that were changed here are written: another request may
        have changed the others. After a save that can raise the version, `token_version` is that of the database.

        Raises AccountChanged, and saves nothing, if the account has been deleted since it was read, or if the password
        was changed here and the account has got a new version, as by a deactivation. `reset_password` differs.
        """
        adds = self._state.adding
        fields = None if update_fields is None else set(update_fields)
        if fields is None or fields & {"username", "email"}:
            self._unify_name_and_email()
            fields = None if fields is None else fields | {"username", "email"}
        if fields is None and not adds and self._stored is not None:
            fields = {name for name, value in self._stored.items() if getattr(self, name) != value}
        can_raise_version = not adds and (fields is None or bool(fields & {"password", "is_active", "token_version"}))
        try:
            # In one transaction: a version that another request raises after this one is not this object's.
            with transaction.atomic(savepoint=False) if can_raise_version else nullcontext():
                if fields is not None and "password" in fields:
                    self.lock_unchanged()
                super().save(*args, update_fields=fields, **kwargs)
                if can_raise_version:
                    self.refresh_from_db(fields=_VERSION_FIELDS)
        except DatabaseError as error:
            if type(error) is DatabaseError:  # Django's own: no row was updated.
                raise AccountChanged from error
            raise
        self._keep_stored(self._loaded_fields() if fields is None else fields)

    def reset_password(self, password: str) -> None:
        """Save this password for the owner of the mailbox, and end all sessions and tokens. It wins over a thief who
        logs the account out everywhere in the meantime: that only raises the version.

        Raises AccountChanged, and saves nothing, if since it was read the account has been deleted or deactivated, or
        has got another password or address.
        """
        same = User.objects.filter(pk=self.pk, is_active=True, password=self.password, email=self.email)
        self.set_password(password)  # Before the lock: it takes a while.
        with transaction.atomic():
            version = same.select_for_update(no_key=True).values_list("token_version", flat=True).first()
            if version is None:
                raise AccountChanged
            self.token_version = version
            self.save(update_fields=["password"])

    def lock_unchanged(self) -> None:
        """Lock the account in the caller's transaction. Raises AccountChanged if it has been deleted, or has got a new
        version since it was read: the session that read it has ended."""
        same = User.objects.filter(pk=self.pk, token_version=self.token_version)
        if not same.select_for_update(no_key=True).exists():
            raise AccountChanged

    def _keep_stored(self, fields: Iterable[str]) -> None:
        """Note that these fields are in the database as they are here."""
        self._stored = (self._stored or {}) | {name: self.__dict__[name] for name in fields}

    def _loaded_fields(self) -> list[str]:
        return [field.attname for field in self._meta.concrete_fields if field.attname in self.__dict__]

    def _unify_name_and_email(self) -> None:
        """Make a name that is an email address the same as the email address, which takes precedence."""
        self.username, self.email = account_name(self.username), self.email.strip().lower()
        if "@" in self.username:
            self.username = self.email = self.email or self.username

    def _get_session_auth_hash(self, secret: str | bytes | None = None) -> str:
        # Django's own hash has only the password: a session must end with the account's version, too.
        value = f"{self.token_version} {self.password}"
        return salted_hmac("apps.accounts session", value, secret=secret, algorithm="sha256").hexdigest()


class AccountSession(models.Model):
    """A session of an account as its owner sees it: which device, from where, used when last. It opens nothing: see
    `apps.accounts.sessions`."""

    session_key = models.CharField(max_length=40, unique=True, help_text="As stored: the digest of the cookie's key.")
    account = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    account_version = models.PositiveIntegerField(help_text="Of the session: with a later one it is not valid.")
    begun_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(db_index=True)
    address = models.CharField(max_length=45, blank=True, help_text="The client's network, not its full address.")
    user_agent = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-last_seen_at"]

    def __str__(self) -> str:
        return f"session {self.pk} of account {self.account_id}"

    @property
    def browser(self) -> str:
        return browser_name(self.user_agent)


class SecurityEvent(models.Model):
    """An entry of the security log, for example a log-in, a changed password or an action of staff. Changed only by
    an erasure, which replaces names, networks and browsers."""

    class Kind(models.TextChoices):
        SIGNED_UP = "signed_up", "signed up"
        LOGGED_IN = "logged_in", "logged in"
        LOG_IN_FAILED = "log_in_failed", "wrong name or password"
        CODE_WRONG = "code_wrong", "wrong one-time code"
        TOKENS_ISSUED = "tokens_issued", "tokens issued to an API client"
        LOGGED_OUT = "logged_out", "logged out"
        LOGGED_OUT_EVERYWHERE = "logged_out_everywhere", "logged out everywhere"
        DEVICE_LOGGED_OUT = "device_logged_out", "logged out another device"
        PASSWORD_CHANGED = "password_changed", "password changed"
        PASSWORD_RESET = "password_reset", "password reset by mail"
        EMAIL_CHANGED = "email_changed", "email address changed"
        SECOND_FACTOR_ADDED = "second_factor_added", "second factor added"
        SECOND_FACTOR_REMOVED = "second_factor_removed", "second factor removed"
        RECOVERY_CODES_CREATED = "recovery_codes_created", "new recovery codes"
        SECOND_FACTOR_RESET = "second_factor_reset", "second factors reset by an operator"
        STAFF_ACTION = "staff_action", "action of staff"
        PERSONAL_DATA_READ = "personal_data_read", "personal data read by staff"
        PERSONAL_DATA_DOWNLOADED = "data_downloaded", "own personal data downloaded"
        ACCOUNT_ERASED = "account_erased", "account erased"

    at = models.DateTimeField(default=clock.process_now, db_index=True)
    kind = models.CharField(max_length=30, choices=Kind.choices)
    account = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    name = models.CharField(max_length=NAME_LENGTH_MAX, blank=True, help_text="The account's name, or the name typed.")
    address = models.CharField(max_length=45, blank=True, help_text="The client's network, not its full address.")
    user_agent = models.CharField(max_length=200, blank=True)
    detail = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["kind", "-id"], name="accounts_security_event_kind"),
            models.Index(fields=["name", "-id"], name="accounts_security_event_name"),
        ]

    @property
    def browser(self) -> str:
        return browser_name(self.user_agent)
