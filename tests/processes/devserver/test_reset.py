"""`make reset` removes the data of a stopped demo, and refuses while the demo runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT
from ticketing.devserver.data_folder import prepare_folder
from ticketing.devserver.demo import DemoFailed
from ticketing.devserver.reset import reset


def test_only_the_demo_data_is_removed(tmp_path: Path) -> None:
    server_folder = prepare_folder(tmp_path)
    (server_folder.folder / "secrets.json").write_text("{}")
    (tmp_path / ".local" / "celerybeat").write_text("")
    (tmp_path / ".local" / "mine.txt").write_text("kept")
    assert reset(tmp_path) == server_folder.folder
    assert not server_folder.folder.exists()
    assert sorted(path.name for path in (tmp_path / ".local").iterdir()) == ["demo.lock", "mine.txt"]


def test_while_the_demo_runs_nothing_is_removed(tmp_path: Path) -> None:
    server_folder = prepare_folder(tmp_path)
    # File locks are per process: another process must hold it for the reset to be refused.
    code = "import sys; from pathlib import Path; from ticketing.devserver.demo import demo_lock\n"
    code += "with demo_lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DemoFailed, match="already running"):
            reset(tmp_path)
        assert server_folder.folder.is_dir()
        assert holder.stdin
        holder.stdin.close()
    assert reset(tmp_path) == server_folder.folder
