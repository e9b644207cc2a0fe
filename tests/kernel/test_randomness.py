"""Random bytes are nobody else's, in a forked child either."""

import os

from ticketing.kernel import randomness

PIECES = 1_000


def test_no_piece_is_given_out_twice() -> None:
    pieces = {randomness.piece() for _ in range(PIECES)} | {randomness.new_uuid().bytes for _ in range(PIECES)}
    assert len(pieces) == 2 * PIECES
    assert {len(one) for one in pieces} == {randomness.SIZE}
    assert randomness.new_uuid().version == 4


def test_a_forked_child_gives_out_others() -> None:
    randomness.piece()  # So that some have been fetched.
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sending, b"".join([randomness.piece() for _ in range(10)]))
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as said:
        theirs = said.read()
    os.waitpid(child, 0)
    ours = [randomness.piece() for _ in range(1_000)]
    assert len(theirs) == 10 * randomness.SIZE
    assert not any(one in theirs for one in ours)
