from collections.abc import Iterator

import pytest

from tests.support.batches import ask, make_tables


@pytest.fixture
def _note_tables(transactional_db: None) -> Iterator[None]:
    make_tables()
    yield
    ask("DROP TABLE batch_note, batch_counter")
