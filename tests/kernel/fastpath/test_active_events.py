"""Active events, as the processes of one machine share them through a file."""

import errno
import logging
import os
from pathlib import Path

import pytest

from apps.kernel.fastpath.active_events import ACTIVE_SECONDS, NOTE_SECONDS, REQUESTS_MIN, ActiveEvents, slot_of

A, B = slot_of("a"), slot_of("b")


def test_another_process_sees_an_event_while_it_is_active(tmp_path: Path) -> None:
    own, other = (
        ActiveEvents(tmp_path / "new" / "active", requests_min=1),
        ActiveEvents(tmp_path / "new" / "active", requests_min=1),
    )
    assert not own.is_any_other_active(A, 1_000.0)
    other.note(B, 1_000.0)
    assert not own.is_any_other_active(A, 1_000.0), "the file is read only now and then"
    assert own.is_any_other_active(A, 1_000.0 + NOTE_SECONDS)
    assert not own.is_any_other_active(B, 1_000.0 + NOTE_SECONDS)
    own.note(A, 1_000.0 + NOTE_SECONDS)
    assert other.is_any_other_active(B, 1_000.0 + NOTE_SECONDS)
    assert not own.is_any_other_active(A, 1_000.0 + 2 * NOTE_SECONDS + ACTIVE_SECONDS)


def test_a_process_sees_its_own_events_at_once(tmp_path: Path) -> None:
    own = ActiveEvents(tmp_path / "active", requests_min=1)
    assert not own.is_any_other_active(A, 1_000.0)
    own.note(B, 1_000.0)
    assert own.is_any_other_active(A, 1_000.0)


def test_a_file_from_before_a_reboot_shows_no_active_event(tmp_path: Path) -> None:
    ActiveEvents(tmp_path / "active", requests_min=1).note(B, 9_000.0)
    assert not ActiveEvents(tmp_path / "active", requests_min=1).is_any_other_active(A, 1_000.0)


def test_without_the_file_a_process_sees_only_its_own_events(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    own = ActiveEvents(tmp_path / "file" / "active", requests_min=1)
    with caplog.at_level(logging.WARNING):
        own.note(B, 1_000.0)
        assert own.is_any_other_active(A, 1_000.0)
    assert len(caplog.records) == 1


def test_with_a_full_disk_a_process_sees_only_its_own_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    own = ActiveEvents(tmp_path / "active", requests_min=1)
    own.note(B, 1_000.0)
    assert own.is_any_other_active(A, 1_000.0)
    assert not ActiveEvents(tmp_path / "active", requests_min=1).is_any_other_active(A, 1_000.0)


def test_without_fallocate_processes_see_each_others_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    ActiveEvents(tmp_path / "active", requests_min=1).note(B, 1_000.0)
    assert ActiveEvents(tmp_path / "active", requests_min=1).is_any_other_active(A, 1_000.0)


def test_a_file_of_another_size_is_resized(tmp_path: Path) -> None:
    (tmp_path / "active").write_bytes(b"something else")
    own = ActiveEvents(tmp_path / "active", requests_min=1)
    own.note(B, 1_000.0)
    assert own.is_any_other_active(A, 1_000.0)


def test_few_requests_make_no_event_active(tmp_path: Path) -> None:
    own, other = ActiveEvents(tmp_path / "active"), ActiveEvents(tmp_path / "active")
    for number in range(60):
        own.note(B, 1_000.0 + number / 2)
    assert not own.is_any_other_active(A, 1_030.0)
    for number in range(REQUESTS_MIN):
        own.note(B, 1_030.0 + number / 20)
    assert own.is_any_other_active(A, 1_031.0)
    assert other.is_any_other_active(A, 1_031.0)
