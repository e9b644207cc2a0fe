"""The settings module. Everything that differs between machines comes from the environment.

Without DATABASE_URL or REDIS_URL, the state file of this checkout's running demo provides them; without a demo,
placeholders are used, so that checks that need no server still run.
"""

import re
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from ticketing import settings_parser
from ticketing.demo_state import read_state
from ticketing.operations import deployment_rules
from ticketing.settings_parts import rate_limits
from ticketing.settings_parts.allauth import *  # noqa: F403 - only constants
from ticketing.settings_parts.beat import *  # noqa: F403 - only constants
from ticketing.settings_parts.feeds import *  # noqa: F403 - only constants
from ticketing.settings_parts.proof_of_work import *  # noqa: F403 - only constants
from ticketing.settings_parts.shared_caches import *  # noqa: F403 - only constants

BASE_DIR = Path(__file__).resolve().parent.parent


class _Environment(environ.Env):
    def get_value(self, var: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().get_value(var, *args, **kwargs)
        except ValueError as error:
            raise ImproperlyConfigured(f"{var} cannot be parsed: {error}") from error


def _seconds(name: str, default: int) -> int:
    value: int = env.int(name, default=default)
    if not 0 <= value <= 31_536_000:
        raise ImproperlyConfigured(f"{name} must be a number of seconds from 0 to a year, not {value}")
    return value


def _rate(name: str, default: str) -> tuple[float, int] | None:
    return settings_parser.parse_rate(name, env.str(name, default=default))


def _count(name: str, default: str) -> int:
    return settings_parser.parse_count(name, env.str(name, default="") or default)


env = _Environment()
_state = read_state(BASE_DIR) or {}

# --- identity --------------------------------------------------------------------------------------------------
DEBUG = env.bool("DEBUG", default=False)
_secret_key = env.str("SECRET_KEY", default="") or _state.get("secret_key", "")
# Processes that serve or sign refuse to start without a configured key (apps.kernel.secret_key). Checks, migrations and
# type checks get a random one, so that no other process would accept what they might sign.
SECRET_KEY_IS_SET = bool(_secret_key)
SECRET_KEY = _secret_key or f"unset-{secrets.token_urlsafe(48)}"
# Earlier values of SECRET_KEY, which still verify what they signed (docs/operations/token-keys.md).
SECRET_KEY_FALLBACKS = [key for key in env.list("SECRET_KEY_FALLBACKS", default=[]) if key]
SITE_URL = settings_parser.parse_site_url(
    "SITE_URL", env.str("SITE_URL", default=_state.get("site_url", "http://localhost:8000"))
)
_secure = urlsplit(SITE_URL).scheme == "https"
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[urlsplit(SITE_URL).hostname, "localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])
# Initial token keys as kid:secret pairs, newest first: the newest signs, all verify. Empty: derived from SECRET_KEY.
# After `manage.py rotate_token_key` the keys of the database sign (apps.kernel.tokens.keys).
TOKEN_KEYS = settings_parser.parse_token_keys("TOKEN_KEYS", env.list("TOKEN_KEYS", default=[]))

# --- applications ------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "ticketing.admin_site.StaffConfig",
    "django.contrib.auth",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.forms",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "django_celery_beat",
    "apps.kernel",
    "apps.kernel.outbox",
    "apps.kernel.scheduler",
    "apps.kernel.feeds",
    "apps.accounts",
    "apps.events",
    "apps.queue",
    "apps.reservations",
    "apps.orders",
    "ticketing.apps.CompositionConfig",
]
MIDDLEWARE = [
    "apps.kernel.http.middleware.ForwardedHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.kernel.http.middleware.DefaultCacheControlMiddleware",
    "apps.kernel.http.compression.CompressedResponses",
    "csp.middleware.CSPMiddleware",
    "apps.kernel.http.middleware.PermissionsPolicyMiddleware",
    "apps.kernel.http.middleware.RequestContext",
    "apps.kernel.http.middleware.RateLimits",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "apps.kernel.http.same_origin.SameOriginWrites",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "apps.accounts.sessions.recorder.SessionRecorder",
    "allauth.account.middleware.AccountMiddleware",
    "apps.accounts.staff.access.AccountSecurity",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "ticketing.log_out.ForgetOrders",
    "apps.kernel.http.middleware.ProblemResponses",
]
ROOT_URLCONF = "ticketing.urls"
ASGI_APPLICATION = "ticketing.asgi.application"
WSGI_APPLICATION = "ticketing.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["apps.kernel.templatetags.fairgate"],
        },
    }
]
# Widgets use the templates of this project, too (templates/admin/widgets).
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

# --- stores ------------------------------------------------------------------------------------------------------
_database_url = env.str("DATABASE_URL", default="") or _state.get("database_url", "")
DATABASE_IS_GIVEN = bool(_database_url)  # By the environment or by a running demo.
DATABASE_URL = _database_url or "postgres://fairgate:fairgate@127.0.0.1:5432/fairgate"
# For leaders, migrations and group commit: a connection that bypasses any pooler in transaction mode.
_direct_url = "" if env.str("DATABASE_URL", default="") else _state.get("database_direct_url", "")
DATABASE_DIRECT_URL = env.str("DATABASE_DIRECT_URL", default="") or _direct_url or DATABASE_URL
REDIS_URL = env.str("REDIS_URL", default="") or _state.get("redis_url", "redis://127.0.0.1:6379/0")

settings_parser.parse_database_url("DATABASE_URL", DATABASE_URL)
settings_parser.parse_database_url("DATABASE_DIRECT_URL", DATABASE_DIRECT_URL)
settings_parser.parse_redis_url("REDIS_URL", REDIS_URL)

DATABASES = {"default": environ.Env.db_url_config(DATABASE_URL)}
DATABASES["default"] |= {
    "ENGINE": "django.db.backends.postgresql",
    "CONN_MAX_AGE": env.int("DATABASE_CONN_MAX_AGE_SECONDS", default=60),
    "CONN_HEALTH_CHECKS": True,
    # A server-side cursor outlives its transaction, which breaks behind a pooler in transaction mode.
    "DISABLE_SERVER_SIDE_CURSORS": True,
    "OPTIONS": {
        **DATABASES["default"].get("OPTIONS", {}),
        "connect_timeout": 5,
        "application_name": env.str("APPLICATION_NAME", default="fairgate"),
    },
}
# Limits of every transaction (rule 5 of docs/locking.md). Writers set tighter ones: see apps.kernel.db.transactions.
DATABASE_LOCK_TIMEOUT_MS = env.int("DATABASE_LOCK_TIMEOUT_MS", default=5_000)
DATABASE_STATEMENT_TIMEOUT_MS = env.int("DATABASE_STATEMENT_TIMEOUT_MS", default=30_000)
DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS = env.int("DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS", default=15_000)
# `migrate` also sets them on the database role, so that they apply outside transactions.
DATABASE_LIMITS_SESSIONS = env.bool("DATABASE_LIMITS_SESSIONS", default=True)

CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {
            "IGNORE_EXCEPTIONS": True,
            # The default is pickle, with which a value in Redis can run code in the site.
            "SERIALIZER": "apps.kernel.redis.MsgpackSerializer",
            "SOCKET_CONNECT_TIMEOUT": 0.5,
            "SOCKET_TIMEOUT": 0.5,
            # Retry once if a restart has closed the connection, but never after a timeout: the waits would add up.
            "CONNECTION_POOL_KWARGS": {"retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))},
        },
    }
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "apps.kernel.push.channel_layer.Layer",
        "CONFIG": {
            "hosts": [{"address": REDIS_URL, "socket_connect_timeout": 1.0}],
            # Redis publishes across all databases of a server: the database number keeps two deployments apart.
            "prefix": f"channels:{urlsplit(REDIS_URL).path.strip('/') or 0}:",
        },
    }
}
# Sessions are in PostgreSQL: losing Redis logs no user out.
SESSION_ENGINE = "apps.kernel.http.sessions"

# --- background work ---------------------------------------------------------------------------------------------
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default=REDIS_URL)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # Workers wait for the broker as long as it takes.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": "celery:",
    "socket_connect_timeout": 2,
    "socket_timeout": 5,
    "visibility_timeout": 600,
}
# Concurrent deliveries of each process that delivers the outbox, each in a thread with a connection.
OUTBOX_DELIVERERS = env.int("OUTBOX_DELIVERERS", default=16)
if not 1 <= OUTBOX_DELIVERERS <= 500:
    raise ImproperlyConfigured(f"OUTBOX_DELIVERERS must be a number from 1 to 500, not {OUTBOX_DELIVERERS}")
# Mail, apart: `mailer` yields the processor to what sells. One process delivers both where only `worker` runs.
MAIL_DELIVERERS = env.int("MAIL_DELIVERERS", default=8)
if not 1 <= MAIL_DELIVERERS <= 500:
    raise ImproperlyConfigured(f"MAIL_DELIVERERS must be a number from 1 to 500, not {MAIL_DELIVERERS}")
MAILER_NICENESS = env.int("MAILER_NICENESS", default=10)
MAIL_IN_WORKER = env.bool("MAIL_IN_WORKER", default=False)
CELERY_TASK_PUBLISH_RETRY = False  # A failed wake-up is dropped: the scan finds the outbox row.
CELERY_BEAT_SCHEDULER = "apps.kernel.observability.beat_scheduler:Scheduler"
# Workers and beat log in our format, which masks secrets.
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Their own queue: a burst of scheduled tasks must not delay the wake-ups of deliveries and sweeps.
CELERY_TASK_ROUTES = {"scheduler.execute": {"queue": "scheduler"}}
CELERY_TIMEZONE = "UTC"

# --- the fast path: frequent calls that `web` answers without Django's request cycle --------------------------------
# Most live listeners of each `web` process; further clients use short polls.
LIVE_LISTENERS_MAX = env.int("LIVE_LISTENERS_MAX", default=15_000)
# Threads of each process for PostgreSQL and Redis calls outside of group commit, each with a connection.
LANE_THREADS = env.int("LANE_THREADS", default=4)
# How long a group commit with few requests waits for more while many of its event arrive; 0: not at all.
GROUP_COMMIT_GATHER_MS = env.int("GROUP_COMMIT_GATHER_MS", default=3)
# Most concurrent holds of one event in each `web` process, first while no other event has holds, then while one has.
LANE_HOLDS_MAX = env.int("LANE_HOLDS_MAX", default=128)
LANE_HOLDS_BESIDE_MAX = env.int("LANE_HOLDS_BESIDE_MAX", default=32)
# Most holds of one event that wait for a slot; further ones get 503.
LANE_HOLDS_WAITING_MAX = env.int("LANE_HOLDS_WAITING_MAX", default=1_000)
# Holds, joins and checkouts that have waited longer get 503 while more wait than are handled together.
OVERLOAD_WAIT_MS = env.int("OVERLOAD_WAIT_MS", default=100)

# --- the site: its niceness, so that the fast path runs first when the processor is busy ------------------------------
SITE_NICENESS = env.int("SITE_NICENESS", default=5)

# --- accounts ----------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "accounts.User"
LOGIN_URL = "log_in"
LOGIN_REDIRECT_URL = "events:catalog"
LOGOUT_REDIRECT_URL = "events:catalog"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 7_200
# The first backend checks passwords; the second answers permissions from memberships of organizers.
AUTHENTICATION_BACKENDS = [
    "apps.accounts.passwords.backend.PasswordBackend",
    "apps.events.organizers.membership_backend.MembershipBackend",
]
PASSWORD_HASHERS = ["apps.accounts.passwords.hasher.BoundedPasswordHasher"]
# Passwords that one process of the site hashes at the same time, at most half of its threads: log-ins then never occupy
# all of them.
PASSWORD_HASHES_MAX = env.int("PASSWORD_HASHES_MAX", default=max(1, env.int("SITE_THREADS", default=2) // 2))
if PASSWORD_HASHES_MAX < 1:
    raise ImproperlyConfigured(f"PASSWORD_HASHES_MAX must be at least 1, not {PASSWORD_HASHES_MAX}")
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if env.bool("EMAIL_CONFIRMATION_REQUIRED", default=_secure) else "optional"
# Refunds, keys and changes of an account's credentials need an authentication in this time; 0: in any time.
REAUTHENTICATION_SECONDS = _seconds("REAUTHENTICATION_SECONDS", 900)
ACCOUNT_REAUTHENTICATION_TIMEOUT = REAUTHENTICATION_SECONDS
# The staff's site: whether a second factor is required, and after which time without use a session ends (0: never).
STAFF_MFA_REQUIRED = env.bool("STAFF_MFA_REQUIRED", default=_secure)
STAFF_IDLE_SECONDS = _seconds("STAFF_IDLE_SECONDS", 3_600)
SECURITY_LOG_DAYS = env.int("SECURITY_LOG_DAYS", default=365)
LANGUAGE_CODE = "en"
FORMAT_MODULE_PATH = ["ticketing.formats"]
TIME_ZONE = "UTC"

# --- security ----------------------------------------------------------------------------------------------------
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=_secure)
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=31_536_000 if _secure else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = _secure
# Browsers' preload lists are nearly permanent, so the operator decides; check --deploy would demand it.
SECURE_HSTS_PRELOAD = env.bool("SECURE_HSTS_PRELOAD", default=False)
SILENCED_SYSTEM_CHECKS = ["security.W021"]
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = _secure
CSRF_COOKIE_SECURE = _secure
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "apps.accounts.pages.views.form_is_stale"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 262_144  # Far above anything that a shopper sends.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "style-src": ["'self'"],
        "script-src": ["'self'"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

# --- rate limits (docs/operations/rate-limits.md) -----------------------------------------------------------------
# Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted.
TRUSTED_PROXIES = settings_parser.parse_networks("TRUSTED_PROXIES", env.list("TRUSTED_PROXIES", default=[]))
# Client networks without rate limits and without caps on what is open at once.
RATE_LIMITS_EXEMPT = settings_parser.parse_networks("RATE_LIMITS_EXEMPT", env.list("RATE_LIMITS_EXEMPT", default=[]))
# The most that one address may have at once over all processes of `web`: connections, and among them live streams.
ADDRESS_CONNECTIONS_MAX = _count("ADDRESS_CONNECTIONS_MAX", "1000")
ADDRESS_STREAMS_MAX = _count("ADDRESS_STREAMS_MAX", "500")
# Networks whose addresses have higher caps, and the factor: an office, a campus, a mobile carrier.
ADDRESS_CAPS_RAISED = settings_parser.parse_factors("ADDRESS_CAPS_RAISED", env.list("ADDRESS_CAPS_RAISED", default=[]))
# The processes that share these caps. `ticketing.server.run` sets it to the number of its workers.
WEB_WORKERS = _count("WEB_WORKERS", "1")
# The threads of each process of `site`, of which downloads leave one to pages.
SITE_THREADS = _count("SITE_THREADS", "2")
# The threads of all processes of `site`, of which an address occupies few at once. By default there are as many
# processes of `site` as of `web`.
SITE_THREADS_MAX = _count("SITE_WORKERS", str(WEB_WORKERS)) * SITE_THREADS
# Requests per second and burst, per address and per token. They allow five hundred buyers behind one address.
RATE_LIMITS = {
    kind: (_rate(f"RATE_LIMIT_{name}_ADDRESS", of_address), _rate(f"RATE_LIMIT_{name}_TOKEN", of_token))
    for kind, name, of_address, of_token in rate_limits.DEFAULT_RATES
}

# --- metrics and the access log -----------------------------------------------------------------------------------
# The bearer token of /metrics and of the details of /readyz. Without one /metrics does not exist at the public address.
METRICS_TOKEN = settings_parser.parse_bearer_token(
    "METRICS_TOKEN", env.str("METRICS_TOKEN", default=_state.get("metrics_token", ""))
)
# /healthz, /readyz and /metrics of each process over plain HTTP, on this port plus an offset; 0: off.
OPERATIONS_PORT = env.int("OPERATIONS_PORT", default=0)
OPERATIONS_BIND = env.str("OPERATIONS_BIND", default="127.0.0.1")
if not 0 <= OPERATIONS_PORT <= 65_530:
    raise ImproperlyConfigured(f"OPERATIONS_PORT must be a port from 1 to 65530, or 0, not {OPERATIONS_PORT}")
METRICS_FOLDER = env.str("METRICS_FOLDER", default=str(BASE_DIR / ".local" / "metrics"))
ACCESS_LOG_SAMPLE = env.float("ACCESS_LOG_SAMPLE", default=0.01)
ACCESS_LOG_SLOW_SECONDS = env.float("ACCESS_LOG_SLOW_SECONDS", default=1.0)
ACCESS_LOG_ADDRESSES = env.str("ACCESS_LOG_ADDRESSES", default="shortened")
if ACCESS_LOG_ADDRESSES not in ("shortened", "full", "none"):
    raise ImproperlyConfigured("ACCESS_LOG_ADDRESSES must be shortened, full or none")

# --- files -------------------------------------------------------------------------------------------------------
# Further fonts for PDFs, for scripts that the bundled ones lack; empty: none.
PDF_FONTS_FOLDER = env.str("PDF_FONTS_FOLDER", default="")
if PDF_FONTS_FOLDER and not Path(PDF_FONTS_FOLDER).is_dir():
    raise ImproperlyConfigured("PDF_FONTS_FOLDER must be a folder")
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Production sets STATIC_ROOT and runs `collectstatic`: file names contain a content hash, files are compressed and
# cached permanently. Without it the source folders are served, so that a fresh checkout, the demo and tests need no
# such step.
STATIC_ROOT = env.str("STATIC_ROOT", default=None)
_collected = STATIC_ROOT is not None and not DEBUG
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "apps.kernel.http.static_files.CollectedFiles"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not _collected
WHITENOISE_AUTOREFRESH = DEBUG

# --- the API -----------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    # The queue app authenticates calls (`authenticate`): queue tokens are bearer tokens too.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.kernel.http.json_body.JSONBody"],
    "DEFAULT_SCHEMA_CLASS": "apps.kernel.http.openapi_document.ApiSchema",
    "EXCEPTION_HANDLER": "apps.kernel.http.problems.exception_handler",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "apps.kernel.http.negotiation.Negotiation",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Fairgate",
    "DESCRIPTION": "Waiting rooms, availability, holds and orders. Errors are RFC 9457 problem documents.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "apps.kernel.http.openapi_document.add_components",
    ],
    "COMPONENT_SPLIT_REQUEST": True,
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_NAME_OVERRIDES": {
        "EventState": "apps.events.serializers.STATES",
        "PlaceStatus": "apps.queue.serializers.STATUSES",
        "LobbyStage": "apps.queue.serializers.STAGES",
        "SeatStatus": "apps.reservations.serializers.SEAT_STATUSES",
        "ReservationStatus": "apps.reservations.models.Reservation.Status",
        "OrderStatus": "apps.orders.models.Order.Status",
    },
}
SIMPLE_JWT = {
    "ACCESS_TOKEN_LIFETIME": timedelta(minutes=30),
    "REFRESH_TOKEN_LIFETIME": timedelta(days=7),
    "ALGORITHM": "HS256",
    "TOKEN_TYPE_CLAIM": "typ",
}

# --- mail --------------------------------------------------------------------------------------------------------
# Without EMAIL_URL, mails are written to this folder and shown at /demo/mailbox, to clients on this machine only.
MAILBOX_FOLDER = env.str("MAILBOX_FOLDER", default=_state.get("mailbox_folder", ""))
if env.str("EMAIL_URL", default=""):
    MAILBOX_FOLDER = ""
    vars().update(_email := env.email_url("EMAIL_URL"))
    if _email["EMAIL_BACKEND"] == "django.core.mail.backends.smtp.EmailBackend":
        EMAIL_BACKEND = "apps.kernel.mail.smtp_backend.EmailBackend"
    # For each answer of the server. Less than the claim of a message that sends a mail (apps/orders/facade.py).
    EMAIL_TIMEOUT = 15
elif MAILBOX_FOLDER:
    EMAIL_BACKEND = "ticketing.devserver.mail_backends.MailboxBackend"
else:
    EMAIL_BACKEND = "ticketing.devserver.mail_backends.TextBackend"
# Most mails to one address in an hour and in a day; further ones are delayed. 0: no cap.
MAIL_PER_HOUR_MAX, MAIL_PER_DAY_MAX = env.int("MAIL_PER_HOUR_MAX", default=20), env.int("MAIL_PER_DAY_MAX", default=100)
if min(MAIL_PER_HOUR_MAX, MAIL_PER_DAY_MAX) < 0:
    raise ImproperlyConfigured("MAIL_PER_HOUR_MAX and MAIL_PER_DAY_MAX are at least 0, which means no cap")
ORDER_LISTS_PER_HOUR_MAX = _count("ORDER_LISTS_PER_HOUR_MAX", "2000")
DEFAULT_FROM_EMAIL = env.str("DEFAULT_FROM_EMAIL", default="Fairgate <tickets@localhost>")

# --- retention of personal data (docs/privacy.md): in days, 0: kept forever -------------------------------------------
# After the event: orders; queue entries without an order. After its end: an order without a sale.
RETENTION_ORDERS_DAYS = env.int("RETENTION_ORDERS_DAYS", default=1_095)
RETENTION_QUEUE_DAYS = env.int("RETENTION_QUEUE_DAYS", default=90)
RETENTION_UNPAID_ORDERS_DAYS = env.int("RETENTION_UNPAID_ORDERS_DAYS", default=90)
# Disputes may begin 540 days after a payment.
RETENTION_PROVIDER_PAYLOADS_DAYS = env.int("RETENTION_PROVIDER_PAYLOADS_DAYS", default=540)
# Full years after the year of the invoice.
RETENTION_INVOICES_YEARS = env.int("RETENTION_INVOICES_YEARS", default=10)
for _name in ("ORDERS_DAYS", "QUEUE_DAYS", "UNPAID_ORDERS_DAYS", "PROVIDER_PAYLOADS_DAYS", "INVOICES_YEARS"):
    if not 0 <= vars()[f"RETENTION_{_name}"] <= 36_500:
        raise ImproperlyConfigured(f"RETENTION_{_name} must be a number from 0 to 36500")
if 0 < RETENTION_INVOICES_YEARS < 10:
    raise ImproperlyConfigured("RETENTION_INVOICES_YEARS must be at least 10, or 0 to keep invoices unchanged")

# --- organizers' webhooks ------------------------------------------------------------------------------------------
# Webhooks use https and public addresses, unless the operator allows more.
WEBHOOKS_OVER_HTTP = env.bool("WEBHOOKS_OVER_HTTP", default=False)
WEBHOOKS_TO_PRIVATE_ADDRESSES = env.bool("WEBHOOKS_TO_PRIVATE_ADDRESSES", default=False)

# --- money -------------------------------------------------------------------------------------------------------
PAYMENT_PROVIDER = env.str("PAYMENT_PROVIDER", default="") or "sandbox"
PAYMENT_CALLS_MAX = env.int("PAYMENT_CALLS_MAX", default=64)
PAYMENT_INQUIRIES_PER_SECOND = env.int("PAYMENT_INQUIRIES_PER_SECOND", default=10)
PAYMENT_TIMEOUT_SECONDS = env.int("PAYMENT_TIMEOUT_SECONDS", default=30)
# The seller on every invoice. Invoice numbers start at 1 in each series and each year.
INVOICE_SELLER_NAME = env.str("INVOICE_SELLER_NAME", default="Fairgate")
INVOICE_SELLER_ADDRESS = env.str("INVOICE_SELLER_ADDRESS", multiline=True, default="")
INVOICE_SELLER_TAX_ID = env.str("INVOICE_SELLER_TAX_ID", default="")
INVOICE_SERIES = env.str("INVOICE_SERIES", default="FG")
if not re.fullmatch(r"[A-Z0-9]{1,12}", INVOICE_SERIES):
    raise ImproperlyConfigured(f"INVOICE_SERIES is 1 to 12 capital letters and digits, not {INVOICE_SERIES!r}")
STRIPE_SECRET_KEY = env.str("STRIPE_SECRET_KEY", default="")
STRIPE_PUBLISHABLE_KEY = env.str("STRIPE_PUBLISHABLE_KEY", default="")
STRIPE_WEBHOOK_SECRETS = env.list("STRIPE_WEBHOOK_SECRETS", default=[])
STRIPE_API_BASE = env.str("STRIPE_API_BASE", default="https://api.stripe.com")
# The circuit breaker opens after this many consecutive faults, at first for this long, then longer each time.
PAYMENT_FAULTS_MAX = env.int("PAYMENT_FAULTS_MAX", default=5)
PAYMENT_REST_SECONDS = env.int("PAYMENT_REST_SECONDS", default=5)
PAYMENT_REST_SECONDS_MAX = env.int("PAYMENT_REST_SECONDS_MAX", default=60)
SANDBOX_BOOKS = env.str("SANDBOX_BOOKS", default=str(BASE_DIR / ".local" / "sandbox.sqlite3"))
SANDBOX_PAUSE_SECONDS = env.int("SANDBOX_PAUSE_SECONDS", default=4)

# --- what a deployment must set ------------------------------------------------------------------------------------
# Processes refuse to serve, and `check --deploy` fails, while there are any (apps.kernel.secret_key).
DEPLOYMENT_VIOLATIONS = deployment_rules.find_violations(
    site_url=SITE_URL,
    payment_provider=env.str("PAYMENT_PROVIDER", default=""),
    allow_sandbox=env.bool("ALLOW_SANDBOX", default=False),
    email_url=env.str("EMAIL_URL", default=""),
    secret_key=_secret_key,
    secret_key_fallbacks=SECRET_KEY_FALLBACKS,
    debug=DEBUG,
)

# --- reports of vulnerabilities ------------------------------------------------------------------------------------
# URIs of the contacts in /.well-known/security.txt; empty: 404.
SECURITY_CONTACT = settings_parser.parse_contacts("SECURITY_CONTACT", env.list("SECURITY_CONTACT", default=[]))

# --- the lobby draw -----------------------------------------------------------------------------------------------
# A public randomness beacon in drand's format; empty: none. Only rounds signed with this key are used. The other
# defaults, empty ones included, are those of drand's network "quicknet"; change all four for another network.
QUEUE_BEACON_URL = env.str("QUEUE_BEACON_URL", default="")
QUEUE_BEACON_SCHEME = env.str("QUEUE_BEACON_SCHEME", default="bls-unchained-g1-rfc9380")
QUEUE_BEACON_PUBLIC_KEY = env.str("QUEUE_BEACON_PUBLIC_KEY", default="")
QUEUE_BEACON_GENESIS = env.int("QUEUE_BEACON_GENESIS", default=1_692_803_367)
QUEUE_BEACON_PERIOD_SECONDS = env.int("QUEUE_BEACON_PERIOD_SECONDS", default=3)

# --- rate control: when the waiting rooms' rates fall (docs/operations/environment.md) -------------------------------
PACE_HOLD_SECONDS_MAX = env.float("PACE_HOLD_SECONDS_MAX", default=0.8)
PACE_PAYMENT_FAULT_SHARE_MAX = env.float("PACE_PAYMENT_FAULT_SHARE_MAX", default=0.2)
PACE_WORKER_LAG_SECONDS_MAX = env.float("PACE_WORKER_LAG_SECONDS_MAX", default=10.0)
PACE_LOCK_WAITS_MAX = env.int("PACE_LOCK_WAITS_MAX", default=4)
PACE_LOCK_WAIT_MS = env.int("PACE_LOCK_WAIT_MS", default=200)
PACE_MEASUREMENTS_MIN = env.int("PACE_MEASUREMENTS_MIN", default=5)
PACE_SIGNAL_AGE_SECONDS_MAX = env.float("PACE_SIGNAL_AGE_SECONDS_MAX", default=5.0)
PACE_STEP_SECONDS = env.float("PACE_STEP_SECONDS", default=2.0)
PACE_UP_SHARE = env.float("PACE_UP_SHARE", default=0.05)
PACE_DOWN_FACTOR = env.float("PACE_DOWN_FACTOR", default=0.7)

# --- seating plans -----------------------------------------------------------------------------------------------
# A larger file is refused before it is read, and a plan with more seats before anything is written.
SEATING_PLAN_FILE_MAX_BYTES = env.int("SEATING_PLAN_FILE_MAX_BYTES", default=64 * 1024 * 1024)
SEATING_PLAN_SEATS_MAX = env.int("SEATING_PLAN_SEATS_MAX", default=200_000)

# --- logs --------------------------------------------------------------------------------------------------------
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "request_id": {"()": "apps.kernel.observability.log_context.RequestIdFilter"},
        "outages": {"()": "apps.kernel.observability.log_context.OutageFilter"},
        "warnings": {"()": "apps.kernel.observability.log_context.WarningFilter"},
        "refusals": {"()": "apps.kernel.observability.log_context.SuspiciousRequestFilter"},
    },
    "formatters": {
        "plain": {
            "()": "apps.kernel.observability.log_context.MaskingFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s",
        },
        "line": {"format": "%(message)s"},
    },
    "handlers": {
        "access": {"class": "logging.StreamHandler", "formatter": "line"},
        "console": {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["request_id", "refusals"]},
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="INFO")},
    "loggers": {
        "ticketing.access": {"level": "INFO", "handlers": ["access"], "propagate": False},
        # Responses with 4xx are normal; an on-sale has thousands per second. Server errors (5xx) are logged.
        "django.request": {"level": "ERROR"},
        "django.security.csrf": {"level": "ERROR"},
        # Logs two INFO lines per call.
        "stripe": {"level": "WARNING"},
        # These retry an unavailable server every second.
        "celery.beat": {"filters": ["outages"]},
        "celery.worker.consumer.consumer": {"filters": ["outages"]},
        "django_celery_beat.schedulers": {"filters": ["outages"]},
        "apps.kernel.maintenance": {"filters": ["outages"]},
        # These log the outage with every request and every health report.
        "psycopg.pool": {"filters": ["outages", "warnings"]},
        "ticketing.outbox_handlers": {"filters": ["outages", "warnings"]},
        "ticketing.operations.health": {"filters": ["warnings"]},
        "apps.kernel.tokens.keys": {"filters": ["warnings"]},
        "apps.kernel.redis": {"filters": ["warnings"]},
        "apps.queue.snapshot.exceptions": {"filters": ["warnings"]},
        # Logs a traceback every second while Redis is unavailable; the callers log the outage themselves.
        "channels_redis.pubsub": {"level": "CRITICAL"},
    },
}
