"""`make reset`: deletes the demo's data, so that the next `make demo` starts from scratch. External servers are not
touched."""

import shutil
import sys
from pathlib import Path

from ticketing.devserver import postgres, valkey
from ticketing.devserver.data_folder import ServersFailed, prepare_folder
from ticketing.devserver.demo import CHECKOUT, MAILBOX, Demo, DemoFailed, demo_lock, end_leftovers


def reset(checkout: Path) -> Path:
    """End the demo's leftover processes, delete its data and return the deleted folder.

    Raises DemoFailed while the demo runs, ServersFailed if the folder is not ours to delete.
    """
    with demo_lock(checkout):
        end_leftovers(Demo(checkout, 0))
        place = prepare_folder(checkout)
        valkey.stop(place)
        postgres.stop(place)
        shutil.rmtree(place.folder)
        shutil.rmtree(checkout / MAILBOX, ignore_errors=True)
        for pattern in ("celerybeat*", "sandbox.sqlite3*"):
            for file in (checkout / ".local").glob(pattern):
                file.unlink()
    return place.folder


def main() -> int:
    try:
        folder = reset(CHECKOUT)
    except DemoFailed as error:
        print(f"make reset: {error}; stop it first", file=sys.stderr)
        return 1
    except (ServersFailed, OSError) as error:
        print(f"make reset: {error}", file=sys.stderr)
        return 1
    print(f"Removed {folder}; the next make demo starts from scratch.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
