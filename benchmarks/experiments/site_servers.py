"""WSGI servers and thread counts for the site: real, uncached pages in one run, compared with Django's ASGI handler.

    python -m benchmarks.experiments.site_servers [--rounds 5] [--seconds 1] [--connections 16]
        [--pages event,catalog] [--only 2x4,asgi]

Needs `wrk`; gunicorn is measured if it is installed (Fairgate does not use it). Starts its own servers with the events
of the demo. `granian 2x4` is two workers with four threads each. `through the API server` is the site server of
--behind with two workers of `ticketing.server.run` in front. `Django's ASGI handler` is `get_asgi_application` on
uvicorn with two workers. The servers are measured in a new random order in each round; the figures are medians, with
the CPU time of a page.
"""

import argparse
import importlib.util
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.support.rooms import start_servers
from ticketing.devserver.ports import free_port

PAGES = {"catalog": "/?uncached", "event": "/events/{slug}/?uncached"}
GRANIAN = ("1x2", "1x8", "2x1", "2x2", "2x3", "2x4", "2x8")
GUNICORN = ("1x8", "2x4", "2x8")


@dataclass
class Way:
    name: str
    port: int
    processes: list[subprocess.Popen[bytes]]

    def spent(self) -> float:
        """Return the CPU seconds of all processes of this server."""
        found = [psutil.Process(process.pid) for process in self.processes]
        found += [child for process in list(found) for child in process.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in found)

    def memory(self) -> float:
        found = [psutil.Process(process.pid) for process in self.processes]
        found += [child for process in list(found) for child in process.children(recursive=True)]
        return sum(process.memory_full_info().uss for process in found) / 1024 / 1024


def granian(size: str, port: int) -> list[str]:
    workers, threads = size.split("x")
    return [
        *(sys.executable, "-m", "granian", "--interface", "wsgi", "--port", str(port), "--workers", workers),
        *("--blocking-threads", threads, "--no-ws", "--log-level", "error", "ticketing.wsgi:application"),
    ]


def gunicorn(size: str, port: int) -> list[str]:
    workers, threads = size.split("x")
    return [
        *(sys.executable, "-m", "gunicorn", "-k", "gthread", "-b", f"127.0.0.1:{port}", "-w", workers),
        *("--threads", threads, "--log-level", "error", "ticketing.wsgi:application"),
    ]


def django_asgi(port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "uvicorn", "django.core.asgi:get_asgi_application", "--factory", "--port", str(port)),
        *("--workers", "2", "--loop", "uvloop", "--http", "httptools", "--lifespan", "off"),
        *("--no-access-log", "--log-level", "error"),
    ]


def ways(behind: str, only: list[str]) -> list[Way]:
    found = [(f"granian {size}", granian(size, 0)) for size in GRANIAN]
    if importlib.util.find_spec("gunicorn"):
        found += [(f"gunicorn gthread {size}", gunicorn(size, 0)) for size in GUNICORN]
    found.append(("Django's ASGI handler", django_asgi(0)))
    started = []
    for name, _ in found:
        if only and not any(part in name for part in only):
            continue
        port = free_port()
        kind, size = name.split()[0], name.split()[-1]
        command = {"granian": granian, "gunicorn": gunicorn}.get(kind, lambda _, port: django_asgi(port))(size, port)
        started.append(Way(name, port, [subprocess.Popen(command)]))
    port, site_port = free_port(), free_port()
    site = subprocess.Popen(granian(behind, site_port))
    environment = {**os.environ, "PORT": str(port), "SITE_PORT": str(site_port), "WEB_WORKERS": "2"}
    api_server = subprocess.Popen([sys.executable, "-m", "ticketing.server.run"], env=environment)
    started.append(Way(f"through the API server, granian {behind}", port, [site, api_server]))
    return started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--pages", default="event")
    parser.add_argument("--behind", default="2x4")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("This needs wrk: apt-get install wrk")
    with start_servers():
        from django.core.management import call_command

        from apps.events.models import Event

        call_command("load_demo", verbosity=0)
        slug = Event.objects.order_by("id").values_list("slug", flat=True)[0]
        # wrk uses the address of this machine, and each process finds the servers in the environment.
        measured = ways(options.behind, [part for part in options.only.split(",") if part])
        try:
            for page in options.pages.split(","):
                measure(page, PAGES[page].format(slug=slug), measured, options)
        finally:
            for way in measured:
                for process in way.processes:
                    process.terminate()
            for way in measured:
                for process in way.processes:
                    process.wait(20)


def measure(page: str, path: str, measured: list[Way], options: argparse.Namespace) -> None:
    for way in measured:
        wait_for(way, path)
        rate(way, path, options.connections, 1)
    taken: list[dict[str, tuple[float, float, float]]] = []
    for _ in range(options.rounds):
        in_turn = random.sample(measured, len(measured))
        taken.append({way.name: rate(way, path, options.connections, options.seconds) for way in in_turn})
    print(f"\n{page}, {options.connections} connections\n")
    print("| server | pages/s | ratio to Django's ASGI handler | p99 | CPU time | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    baseline = "Django's ASGI handler"
    for way in measured:
        name = way.name
        shares = [one[name][0] / one[baseline][0] for one in taken if baseline in one]
        share = f"{statistics.median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})" if shares else ""
        rate_, slow, spent = (statistics.median(one[name][index] for one in taken) for index in range(3))
        print(f"| {name} | {rate_:,.0f} | {share} | {slow:.0f} ms | {spent:.1f} ms | {way.memory():.0f} MiB |")


def rate(way: Way, path: str, connections: int, seconds: int) -> tuple[float, float, float]:
    """Return the pages a second, the 99th percentile of the response time in ms, and the CPU time of a page in ms."""
    begun = way.spent()
    url = f"http://127.0.0.1:{way.port}{path}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        sys.exit(f"{way.name}: some requests failed:\n{output}")
    spent = 1e3 * (way.spent() - begun) / int(output.split(" requests in")[0].split()[-1])
    per_second, slow = (
        re.search(pattern, output) for pattern in (r"Requests/sec:\s+([\d.]+)", r"99%\s+([\d.]+)(us|ms|s)")
    )
    assert per_second is not None, output
    assert slow is not None, output
    return float(per_second[1]), float(slow[1]) * {"us": 0.001, "ms": 1, "s": 1000}[slow[2]], spent


def wait_for(way: Way, path: str) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    until = time.monotonic() + 60
    while True:
        failure: Any
        try:
            with urlopen(f"http://127.0.0.1:{way.port}{path}") as response:
                assert response.status == 200, way.name
                return
        except HTTPError as error:
            failure = error  # The API server started before its site.
        except OSError as error:
            failure = error
        if time.monotonic() > until or any(process.poll() is not None for process in way.processes):
            raise failure
        time.sleep(0.1)


if __name__ == "__main__":
    main()
