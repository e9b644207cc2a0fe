"""The state file: valid only while the processes that it names are running."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ticketing.demo_state import STATE_FILE, clear_state, read_state, write_state

VALUES = {"database_url": "postgres://a:b@127.0.0.1:1/c", "web_port": 8000}


def test_written_values_are_read_as_text_while_the_processes_run(tmp_path: Path) -> None:
    write_state(tmp_path, VALUES, [os.getpid()])
    assert read_state(tmp_path) == {"database_url": VALUES["database_url"], "web_port": "8000"}


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    write_state(tmp_path, VALUES, [os.getpid()])
    assert (tmp_path / STATE_FILE).stat().st_mode & 0o777 == 0o600


def test_the_state_is_invalid_once_one_of_its_processes_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        write_state(tmp_path, VALUES, [os.getpid(), process.pid])
        assert read_state(tmp_path) is not None
        process.communicate(b"\n")
    assert read_state(tmp_path) is None


def test_a_reused_process_id_makes_the_state_invalid(tmp_path: Path) -> None:
    write_state(tmp_path, VALUES, [os.getpid()])
    path = tmp_path / STATE_FILE
    written = json.loads(path.read_text())
    written["processes"][0]["started"] = "1"
    path.write_text(json.dumps(written))
    assert read_state(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"processes": []}', '{"database_url": "x"}'])
def test_an_incomplete_file_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / ".local").mkdir()
    (tmp_path / STATE_FILE).write_text(content)
    assert read_state(tmp_path) is None


def test_without_a_file_there_is_no_demo(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None
    clear_state(tmp_path)
    write_state(tmp_path, VALUES, [os.getpid()])
    clear_state(tmp_path)
    assert read_state(tmp_path) is None


def test_reading_the_state_needs_no_django() -> None:
    code = "import sys, ticketing.demo_state; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
