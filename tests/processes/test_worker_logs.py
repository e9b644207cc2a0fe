"""Workers and beat log in the site's format, which masks secrets: their tasks send mails and call providers."""

import os
import subprocess
import sys

from tests.support.servers import CHECKOUT

FAILURE = """
import logging
from ticketing.celery import app

app.loader.import_default_modules()  # Sets up Django, as a worker does.
app.log.setup(loglevel="WARNING")
try:
    raise ValueError("refused: ann@example.org")
except ValueError:
    logging.getLogger("apps.orders.mail").exception("GET /tickets/ABCDEF/ failed")
"""


def test_a_workers_log_is_masked() -> None:
    """Celery replaces the handlers of the root logger by default."""
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "ticketing.settings"}
    output = subprocess.run(
        [sys.executable, "-c", FAILURE], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
    ).stderr
    assert "GET /tickets/…/ failed" in output
    assert "ValueError: refused: …@example.org" in output
    assert "ABCDEF" not in output
    assert "ann@" not in output
