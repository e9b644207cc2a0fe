import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT, temporary_server_folder
from ticketing.devserver.data_folder import ServerFolder

COPIED = ("apps", "ticketing", "templates", "static", "manage.py", "Procfile", "Makefile", "requirements.txt")


def copy_checkout(folder: Path) -> None:
    """Copy the files that the demo runs from into the folder, without `.local/`."""
    for name in COPIED:
        source = CHECKOUT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)


@pytest.fixture(scope="module")
def bare_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout without a running demo, whether or not one runs in this checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    return folder


@pytest.fixture
def server_folder() -> Iterator[ServerFolder]:
    """A data folder of this test, for servers that it may kill; everything in it is removed afterwards."""
    server_folder, end = temporary_server_folder()
    yield server_folder
    end()
