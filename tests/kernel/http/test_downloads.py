"""Reports, proofs and receipts have one meaning for every reader."""

from pathlib import Path

import pytest
from django.core.management.base import CommandError

from apps.kernel.http.downloads import read_json


@pytest.mark.parametrize("text", ['{"version": 99, "version": 1}', '[{"proof": {"leaf": "a", "leaf": "b"}}]'])
def test_a_name_that_is_given_twice_is_refused(tmp_path: Path, text: str) -> None:
    """Most readers would take the last value, and some the first."""
    file = tmp_path / "report.json"
    file.write_text(text)
    with pytest.raises(CommandError, match="a name is given twice"):
        read_json(file)
