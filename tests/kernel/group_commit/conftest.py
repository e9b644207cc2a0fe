from collections.abc import Iterator

import pytest

from tests.support.batches import make_tables, run_sql


@pytest.fixture
def _note_tables(transactional_db: None) -> Iterator[None]:
    make_tables()
    yield
    run_sql("DROP TABLE batch_note, batch_counter")
