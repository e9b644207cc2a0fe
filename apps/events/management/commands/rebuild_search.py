"""`manage.py rebuild_search`: write the search index of all events anew."""

import time
from typing import Any

from django.core.management.base import BaseCommand

from apps.events.search import index_writer


class Command(BaseCommand):
    help = (
        "Writes the search index of all public events anew, in one transaction: searches use the previous index until "
        "it is done. The index follows changes by itself; this is for a restored database or a new format."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        begun = time.monotonic()
        count = index_writer.rebuild()
        index_writer.vacuum()
        self.stdout.write(f"{count} events indexed in {time.monotonic() - begun:.1f} s")
