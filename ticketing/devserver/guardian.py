"""Stops disposable servers once their owner has ended: `python -m ticketing.devserver.guardian FOLDER`.

The guardian reads a pipe whose other end the owner holds. When the owner closes it or is killed, the guardian stops the
folder's servers and removes the folder.
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
    """Start the guardian of a folder, in its own session so that Ctrl-C does not reach it."""
    return subprocess.Popen(
        [sys.executable, "-m", "ticketing.devserver.guardian", str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
        cwd=checkout,
    )


def dismiss(guardian: subprocess.Popen[bytes]) -> None:
    """Make the guardian stop its servers and remove the folder, and wait for it."""
    assert guardian.stdin
    guardian.stdin.close()
    guardian.wait(timeout=END_SECONDS_MAX)


def end(place: ServerFolder) -> None:
    """Stop both servers and remove the folder."""
    valkey.stop(place)
    postgres.stop(place)
    shutil.rmtree(place.folder)


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end(create_folder(Path(sys.argv[1]), choose_account()))
