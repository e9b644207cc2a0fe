"""Problems that represent errors of the database."""

import threading

import pytest
from django.db import DatabaseError, connection, transaction

from apps.kernel.http import problems


def _idle_in_a_transaction() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '10ms'")
        threading.Event().wait(0.2)
        cursor.execute("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_the_server_ended_as_idle_is_busy() -> None:
    with pytest.raises(DatabaseError) as ended:
        _idle_in_a_transaction()
    connection.close()
    assert isinstance(problems.from_exception(ended.value), problems.Busy)
