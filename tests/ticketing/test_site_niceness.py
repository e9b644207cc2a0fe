"""The site has a lower scheduling priority than the fast path."""

import os
import subprocess
import sys

LOWER_PRIORITY = """
import os
from ticketing import startup
startup.lower_priority(0)
before = os.getpriority(os.PRIO_PROCESS, 0)
startup.lower_priority(99)
startup.lower_priority(1)
print(before, os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_lower_priority_never_raises_the_priority() -> None:
    own_priority = os.getpriority(os.PRIO_PROCESS, 0)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "ticketing.settings"}
    process = subprocess.run(
        [sys.executable, "-c", LOWER_PRIORITY], env=environment, capture_output=True, text=True, start_new_session=True,
        check=True,
    )  # fmt: skip
    assert process.stdout.split() == [str(own_priority), "19"]
