"""Ends disposable servers when their owner is gone, however it went: `python -m ticketing.devserver.guardian FOLDER`.

The owner holds the other end of our standard input. It closes when the owner closes it, and also when the owner is
killed; then the servers of the folder are stopped and the folder is removed.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from ticketing.devserver import postgres, valkey
from ticketing.devserver.data_folder import ServerFolder, choose_account, create_folder

END_SECONDS_MAX = 90


def start_guardian(folder: Path, checkout: Path) -> subprocess.Popen[bytes]:
    """Returns the guardian of a folder, running in a session of its own so that Ctrl-C does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", "ticketing.devserver.guardian", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd=checkout,
    )


def dismiss(guardian: subprocess.Popen[bytes]) -> None:
    """Has the guardian end its servers now; they and the folder are gone afterwards."""
    assert guardian.stdin
    guardian.stdin.close()
    guardian.wait(timeout=END_SECONDS_MAX)


def end(place: ServerFolder) -> None:
    """Stops both servers and removes the folder."""
    valkey.stop(place)
    postgres.stop(place)
    shutil.rmtree(place.folder)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(create_folder(Path(sys.argv[1]), choose_account()))
