"""Finds Debian's Chromium for the browser tests, and installs it where apt may: `python -m tests.chromium`."""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PACKAGES = ("chromium", "fonts-liberation")


def find_chromium() -> str | None:
    """Returns the browser's path, the one that CHROMIUM names if it is set."""
    wanted = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, [wanted] if wanted else PROGRAMS)), None)


def why_absent() -> str:
    """Returns the reason why there is no browser and why we cannot install one."""
    if shutil.which("apt-get") is None:
        return "no Chromium found, and no apt-get to install it with"
    if os.geteuid() != 0:
        return f"no Chromium found, and only root can `apt-get install {PACKAGES[0]}`"
    return f"no Chromium found (`apt-get install {PACKAGES[0]}` brings it)"


def install_chromium() -> bool:
    """Installs Chromium where that is possible; tells whether it is there afterwards."""
    if find_chromium():
        return True
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    print("Installing Chromium for the browser tests …", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", *PACKAGES]):
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
            return False
    return find_chromium() is not None


if __name__ == "__main__":
    if not install_chromium():
        print(f"Browser tests are left out: {why_absent()}.")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
