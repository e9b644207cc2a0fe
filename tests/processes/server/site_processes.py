"""The site in processes of its own, started with the command of the Procfile."""

import contextlib
import os
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
from honcho.environ import parse_procfile

from tests.support.servers import CHECKOUT
from tests.support.web_processes import WAIT_SECONDS_MAX, wait_until
from ticketing.devserver.ports import free_port

APPLICATION = "ticketing.wsgi:application"


@contextlib.contextmanager
def site(application: str = APPLICATION, **more: str) -> Iterator[int]:
    """Run the site, or another WSGI application under the same server; yield its port once it answers."""
    port = free_port()
    command = parse_procfile((CHECKOUT / "Procfile").read_text()).processes["site"]
    assert command.count(APPLICATION) == 1
    environment = {
        **os.environ,
        "SITE_PORT": str(port),
        "SITE_WORKERS": "1",
        "SITE_NICENESS": "0",
        "LOG_LEVEL": "ERROR",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **more,
    }
    process = psutil.Popen(command.replace(APPLICATION, application), shell=True, env=environment, cwd=CHECKOUT)

    def answers() -> bool:
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS_MAX)) as connection:
            try:
                connection.request("GET", "/healthz")
                return connection.getresponse().status > 0
            except OSError:
                return False

    try:
        wait_until(answers, "the site answers", while_runs=process)
        yield port
    finally:
        family = [process, *process.children(recursive=True)] if process.is_running() else []
        with contextlib.suppress(psutil.Error):
            process.terminate()
        _, left = psutil.wait_procs(family, timeout=WAIT_SECONDS_MAX)
        for each in left:
            each.kill()
