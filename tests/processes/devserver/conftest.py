import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT, temporary_server_folder
from ticketing.devserver.data_folder import ServerFolder

COPIED = ("apps", "ticketing", "templates", "static", "manage.py", "Procfile", "Makefile", "requirements.txt")


def copy_checkout(folder: Path) -> None:
    """What the house runs from is in the folder, and nothing in its `.local/`."""
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)


@pytest.fixture(scope="module")
def bare_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout of which no demo runs, whatever runs in this one."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    return folder


@pytest.fixture
def place() -> Iterator[ServerFolder]:
    """A place of this test's own, for servers that it may kill; nothing of it is left afterwards."""
    place, end = temporary_server_folder()
    yield place
    end()
