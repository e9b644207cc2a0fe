"""Frames: one document in each form that is sent, and changes that can be merged."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.kernel.push.frames import DeltaFrame, Frame, Key, chunk, closing_event, frame

SEATS = [f"A-{number}" for number in range(6)]
STATUSES = ["available", "held", "sold", "blocked"]


def test_one_document_has_three_forms() -> None:
    one = frame("sections", {"sections": []}, frame_id="e-7")
    assert one.event == b'event: sections\nid: e-7\ndata: {"sections":[]}\n\n'
    assert one.chunk == b"%x\r\n%b\r\n" % (len(one.event), one.event)
    assert json.loads(one.text) == {"event": "sections", "id": "e-7", "data": {"sections": []}}
    assert b"id:" not in frame("queue", {}).event
    assert closing_event(1.5).startswith(b"retry: 1500\nevent: bye\n")
    assert chunk(b"0123456789abcdef") == b"10\r\n0123456789abcdef\r\n"


@pytest.mark.parametrize("data", [b'{\n"a":1}', b'{"a":1}\r'])
def test_a_document_of_two_lines_would_be_two_events(data: bytes) -> None:
    with pytest.raises(ValueError, match="one line"):
        Frame(Key("sections"), data)


@given(st.lists(st.dictionaries(st.sampled_from(SEATS), st.sampled_from(STATUSES)), min_size=1, max_size=8), st.data())
def test_merged_changes_equal_the_changes_applied_one_by_one(
    changes: list[dict[str, str]], data: st.DataObject
) -> None:
    """Wherever a listener stops reading and resumes, it ends with the same seats."""
    frames = [DeltaFrame(Key("seats", "hall"), {"section_id": "hall"}, "seats", one) for one in changes]
    one_by_one: dict[str, str] = {}
    for change in changes:
        one_by_one |= change
    together: dict[str, str] = {}
    waiting: Frame | None = None
    for each in frames:
        waiting = each if waiting is None else each.merged_with(waiting)
        if data.draw(st.booleans()):
            together |= json.loads(waiting.data)["seats"]
            waiting = None
    if waiting is not None:
        together |= json.loads(waiting.data)["seats"]
    assert together == one_by_one


def test_a_complete_frame_stays_complete_when_a_change_is_merged_into_it() -> None:
    key = Key("seats", "hall")
    whole = DeltaFrame(key, {"section_id": "hall", "complete": True}, "seats", {"A-1": "sold"})
    change = DeltaFrame(key, {"section_id": "hall"}, "seats", {"A-2": "held"})
    assert json.loads(change.merged_with(whole).data) == {
        "section_id": "hall", "complete": True, "seats": {"A-1": "sold", "A-2": "held"},
    }  # fmt: skip
