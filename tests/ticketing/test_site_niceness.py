"""The site takes the processor after the lane."""

import os
import subprocess
import sys

STEPS_BACK = """
import os
from ticketing import startup
startup.lower_priority(0)
before = os.getpriority(os.PRIO_PROCESS, 0)
startup.lower_priority(99)
startup.lower_priority(1)
print(before, os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_a_process_steps_back_as_far_as_it_is_told_and_never_forward() -> None:
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "ticketing.settings"}
    told = subprocess.run(
        [sys.executable, "-c", STEPS_BACK], env=environment, capture_output=True, text=True, start_new_session=True,
        check=True,
    )  # fmt: skip
    assert told.stdout.split() == [str(ours), "19"]
