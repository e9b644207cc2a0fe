"""A process with unsafe or invalid settings ends at its start, in one line that never shows a secret."""

import os
import sys
from pathlib import Path

import pytest
from honcho.environ import parse_procfile

from tests.processes.devserver.test_secret_key import CELERY, run

HTTPS = {"SITE_URL": "https://tickets.example", "SECRET_KEY": "hidden" * 8}
# Commands check Stripe's settings first.
STRIPE = {"STRIPE_SECRET_KEY": "sk_live_0", "STRIPE_PUBLISHABLE_KEY": "pk_live_0", "STRIPE_WEBHOOK_SECRETS": "whsec_0"}
SAFE = {**HTTPS, **STRIPE, "PAYMENT_PROVIDER": "stripe", "EMAIL_URL": "consolemail://"}
WEB = ("-m", "ticketing.server.run")
PROCESSES = [
    WEB,
    ("-c", "import ticketing.asgi"),
    ("-c", "import ticketing.wsgi"),
    ("-m", "ticketing.startup"),
    (*CELERY, "worker", "--concurrency", "1", "--loglevel", "critical"),
    (*CELERY, "beat", "--pidfile=", "--schedule=beat-file", "--scheduler=celery.beat.PersistentScheduler"),
    ("manage.py", "gatekeeper"),
    ("manage.py", "relay"),
    ("manage.py", "mailer"),
    ("manage.py", "deliver_outbox"),
]


def refusal(checkout: Path, *process: str, **environment: str) -> str:
    """Run a process that must end with status 1, and return the one line of its error output."""
    done = run(checkout, *process, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "hidden" not in done.stdout + done.stderr
    return line


@pytest.mark.parametrize(
    "process", PROCESSES, ids=lambda process: process[5] if process[1] == "celery" else process[-1]
)
def test_no_process_serves_an_https_address_with_unsafe_settings(bare_checkout: Path, process: tuple[str, ...]) -> None:
    line = refusal(bare_checkout, *process, **HTTPS)
    assert "Set PAYMENT_PROVIDER" in line
    assert refusal(bare_checkout, *process, **SAFE | {"EMAIL_URL": ""}).count("Set EMAIL_URL") == 1
    assert "TOKEN_KEYS must look like" in refusal(bare_checkout, *process, SECRET_KEY="k", TOKEN_KEYS="hidden")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"PAYMENT_PROVIDER": "sandbox"}, "Set PAYMENT_PROVIDER=stripe"),
        ({"SECRET_KEY": "hidden"}, "Set SECRET_KEY"),
        ({"SECRET_KEY": ""}, "Set SECRET_KEY"),
        ({"TOKEN_KEYS": ":hidden"}, "TOKEN_KEYS must look like"),
        ({"TOKEN_KEYS": "new:hidden"}, "TOKEN_KEYS must look like"),
        ({"METRICS_TOKEN": "hidden"}, "METRICS_TOKEN must be"),
        ({"OPERATIONS_PORT": "70000"}, "OPERATIONS_PORT must be"),
    ],
)
def test_each_unsafe_setting_is_refused(bare_checkout: Path, changes: dict[str, str], expected: str) -> None:
    assert expected in refusal(bare_checkout, *WEB, **SAFE | changes)


def test_site_ends_instead_of_starting_its_workers_again_and_again(bare_checkout: Path) -> None:
    command = parse_procfile((bare_checkout / "Procfile").read_text()).processes["site"]
    code = f"import os; os.execvp('sh', ['sh', '-c', {command!r}])"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert "Set PAYMENT_PROVIDER" in refusal(bare_checkout, "-c", code, PATH=path, **HTTPS)


def test_a_staging_system_may_use_the_sandbox(bare_checkout: Path) -> None:
    code = "import ticketing.wsgi; print('serves')"
    assert run(bare_checkout, "-c", code, **SAFE | {"PAYMENT_PROVIDER": "", "ALLOW_SANDBOX": "1"}).stdout == "serves\n"


def test_the_deployment_check_names_every_unsafe_setting(bare_checkout: Path) -> None:
    assert run(bare_checkout, "manage.py", "check", **HTTPS).returncode == 0, "checks and migrations need none of them"
    checked = run(bare_checkout, "manage.py", "check", "--deploy", **HTTPS)
    assert checked.returncode == 1
    assert checked.stderr.count("kernel.E002") == 2
    assert "kernel.E002" not in run(bare_checkout, "manage.py", "check", "--deploy", **SAFE).stderr


def test_browsers_preload_hsts_only_if_the_operator_asks(bare_checkout: Path) -> None:
    code = "from django.conf import settings as s; print(s.SECURE_HSTS_SECONDS > 0, s.SECURE_HSTS_PRELOAD)"
    assert run(bare_checkout, "-c", code, **SAFE).stdout.split() == ["True", "False"]
    assert run(bare_checkout, "-c", code, **SAFE, SECURE_HSTS_PRELOAD="on").stdout.split() == ["True", "True"]
