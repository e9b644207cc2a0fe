"""Programs that the suite needs: wrk and nginx from apt, py-spy from benchmarks/requirements.txt."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite.errors import SuiteFailed

INSTALL_SECONDS_MAX = 300
_ELSEWHERE = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin"))


@dataclass(frozen=True)
class Programs:
    wrk: str
    nginx: str
    py_spy: str


def ready() -> Programs:
    """Return the programs, after installing missing ones where that is allowed. Raises SuiteFailed."""
    missing = [name for name in ("wrk", "nginx") if _find(name) is None]
    if missing:
        _install(missing)
    py_spy = Path(sys.executable).parent / "py-spy"
    if not py_spy.exists():
        raise SuiteFailed("py-spy is missing: make bench installs it, or pip install -r benchmarks/requirements.txt")
    found = {name: _find(name) for name in ("wrk", "nginx")}
    for name, path in found.items():
        if path is None:
            raise SuiteFailed(f"{name} was installed but cannot be found")
    return Programs(str(found["wrk"]), str(found["nginx"]), str(py_spy))


def _find(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), _ELSEWHERE)))


def _install(names: list[str]) -> None:
    command = f"apt-get install {' '.join(names)}"
    if os.geteuid() != 0 or _find("apt-get") is None:
        raise SuiteFailed(f"{' and '.join(names)} missing: install them first (Debian: {command})")
    print(f"Installing {' and '.join(names)} …", flush=True)
    # Without a runlevel no package starts its service: only the program nginx is needed.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for step in (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", *names]):
        done = subprocess.run(
            step, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    if done.returncode != 0:
        raise SuiteFailed(f"{command} failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
