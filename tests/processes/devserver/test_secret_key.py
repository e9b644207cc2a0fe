"""Without a secret key of its own a process serves no request and signs nothing; commands that need no key work."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from apps.kernel.tokens import jwt, keys
from apps.orders.payments.providers import sandbox
from tests.support.servers import environment_without_run

RUN_SECONDS_MAX = 180
SENTENCE = "Set SECRET_KEY"
CELERY = ("-m", "celery", "--quiet", "-A", "ticketing")


def run(checkout: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a checkout without a running demo, with the servers of the tests and without a key."""
    servers = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL")}
    return subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        cwd=checkout,
        env={**environment_without_run(), **servers, "DJANGO_SETTINGS_MODULE": "ticketing.settings", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


@pytest.mark.parametrize(
    "process",
    [
        ("-c", "import ticketing.asgi"),
        ("-c", "import ticketing.wsgi"),
        (*CELERY, "worker", "--concurrency", "1", "--loglevel", "critical"),
        (*CELERY, "beat", "--pidfile=", "--schedule=beat-file", "--scheduler=celery.beat.PersistentScheduler"),
        ("manage.py", "gatekeeper"),
        ("manage.py", "relay"),
        ("manage.py", "mailer"),
        ("manage.py", "deliver_outbox"),
    ],
    ids=lambda process: process[-1].split(".")[-1] if process[0] != "-m" else process[5],
)
def test_no_process_serves_without_a_key(bare_checkout: Path, process: tuple[str, ...]) -> None:
    done = run(bare_checkout, *process)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if SENTENCE in line], done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", ["", None])
def test_an_empty_key_is_no_key(bare_checkout: Path, key: str | None) -> None:
    given = {} if key is None else {"SECRET_KEY": key}
    code = "from django.conf import settings as s; print(s.SECRET_KEY_IS_SET, len(s.SECRET_KEY) > 50, s.SECRET_KEY)"
    first, second = (run(bare_checkout, "-c", code, **given).stdout.split() for _ in range(2))
    assert first[:2] == second[:2] == ["False", "True"]
    assert first[2] != second[2]


def test_checks_need_no_key_and_the_deployment_check_names_it(bare_checkout: Path) -> None:
    assert run(bare_checkout, "manage.py", "check").returncode == 0
    deployment = run(bare_checkout, "manage.py", "check", "--deploy")
    assert deployment.returncode == 1
    assert SENTENCE in deployment.stderr
    assert SENTENCE not in run(bare_checkout, "manage.py", "check", "--deploy", SECRET_KEY="k").stderr


@pytest.fixture
def no_key(settings) -> Iterator[None]:
    settings.SECRET_KEY_IS_SET = False
    keys.forget()
    yield
    keys.forget()


def test_no_token_is_issued_or_accepted_without_a_key(no_key: None, settings) -> None:
    with pytest.raises(ImproperlyConfigured, match=SENTENCE):
        jwt.issue("queue", "entry", timedelta(hours=1))
    settings.SECRET_KEY_IS_SET = True
    token = jwt.issue("queue", "entry", timedelta(hours=1))
    settings.SECRET_KEY_IS_SET = False
    keys.forget()
    with pytest.raises(ImproperlyConfigured, match=SENTENCE):
        jwt.verify(token, frozenset({"queue"}))


def test_no_provider_message_is_signed_without_a_key(no_key: None) -> None:
    with pytest.raises(ImproperlyConfigured, match=SENTENCE):
        sandbox.sign(b"{}")
