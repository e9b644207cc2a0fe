"""Debian programs that some tests need: found, or installed with apt if allowed: `python -m tests.support.programs`."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A program; the environment variable `variable` may name another executable; `marker` marks the tests that need
    it."""

    title: str
    marker: str
    tests: str
    variable: str
    names: tuple[str, ...]
    packages: tuple[str, ...]
    is_service: bool = False
    """Its package starts a service if a system manager runs."""

    def find(self) -> str | None:
        """Return its path: the one that the environment names, if any, else the first found."""
        wanted = os.environ.get(self.variable)
        # Some systems have it only on root's PATH; other users may run it too.
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
        for name in [wanted] if wanted else self.names:
            if found := shutil.which(name, path=path):
                return found
        return None

    def why_absent(self) -> str:
        """Return why it is absent and why we cannot install it."""
        if shutil.which("apt-get") is None:
            return f"no {self.title} found, and no apt-get to install it with"
        if os.geteuid() != 0:
            return f"no {self.title} found, and only root can `apt-get install {self.packages[0]}`"
        return f"no {self.title} found (`apt-get install {self.packages[0]}` brings it)"

    def may_be_installed(self) -> bool:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            return False
        # Do not install a service on a person's own machine.
        return not self.is_service or is_in_ci() or not Path("/run/systemd/system").exists()


CHROMIUM = Program(
    "Chromium",
    "browser",
    "browser tests",
    "CHROMIUM",
    ("chromium", "chromium-browser", "google-chrome"),
    ("chromium", "fonts-liberation"),
)
PGBOUNCER = Program(
    "pgbouncer", "pgbouncer", "the sale behind pgbouncer", "PGBOUNCER", ("pgbouncer",), ("pgbouncer",), is_service=True
)
PROGRAMS = (CHROMIUM, PGBOUNCER)


def absent() -> list[Program]:
    """Return the programs whose tests cannot run here."""
    return [program for program in PROGRAMS if not program.find()]


def is_in_ci() -> bool:
    """In CI no test may be left out."""
    return os.environ.get("CI") == "true"


def install_absent() -> None:
    """Install every absent program that may be installed."""
    wanted = [program for program in absent() if program.may_be_installed()]
    if not wanted:
        return
    print(f"Installing {' and '.join(program.title for program in wanted)} for the tests …", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    packages = [package for program in wanted for package in program.packages]
    for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(done.stdout[-2000:])
            return


def main() -> int:
    install_absent()
    for program in absent():
        print(f"Left out: {program.tests}: {program.why_absent()}.")
    return 1 if is_in_ci() and absent() else 0


if __name__ == "__main__":
    sys.exit(main())
