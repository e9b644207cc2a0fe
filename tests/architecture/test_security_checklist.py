"""docs/security.md answers every section of OWASP ASVS 5.0 that has requirements of level 1 or 2, with evidence.

`test_docs.py` checks that each named file and test exists.
"""

import re

import pytest

from tests.support.servers import CHECKOUT

SECTIONS = {
    1: range(1, 6),
    2: range(1, 5),
    3: (2, 3, 4, 5, 7),
    4: range(1, 5),
    5: range(1, 5),
    6: (1, 2, 3, 4, 5, 6, 8),
    7: range(1, 7),
    8: range(1, 5),
    9: (1, 2),
    10: range(1, 8),
    11: range(1, 7),
    12: range(1, 4),
    13: range(1, 5),
    14: range(1, 4),
    15: range(1, 4),
    16: range(1, 6),
    17: range(1, 4),
}
"""By chapter: the sections of ASVS 5.0.0 with requirements of level 1 or 2."""
STATES = ("met", "partly", "not met", "operator", "none")
FILE = re.compile(r"`(?:apps|ticketing|tests|docs|templates|static)/[^`]+`|\]\([^)]+\.(?:md|in|txt)[^)]*\)")


def rows() -> list[list[str]]:
    """Return sections, subject, state, evidence and gap of each row."""
    lines = (CHECKOUT / "docs" / "security.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| V")]


def test_every_section_of_levels_1_and_2_has_one_row() -> None:
    answered = [section for sections, *_ in rows() for section in sections.split(", ")]
    assert len(answered) == len(set(answered))
    assert set(answered) == {f"V{chapter}.{section}" for chapter, found in SECTIONS.items() for section in found}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_state_has_its_evidence_and_its_gap(row: list[str]) -> None:
    _, _, state, evidence, gap = row
    assert state in STATES
    assert bool(FILE.search(evidence)) >= (state in ("met", "partly")), "evidence is a file or a test"
    assert bool(gap) == (state in ("partly", "not met", "operator")), "a gap is named, or there is none"
