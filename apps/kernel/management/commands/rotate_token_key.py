from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.kernel import clock
from apps.kernel.tokens import keys


class Command(BaseCommand):
    help = (
        "Publishes a new token key, which signs a minute later; earlier keys verify until their last token has "
        "expired. With --drop, all tokens of a compromised key become invalid."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--drop", metavar="KID", help="instead, invalidate this compromised key")
        parser.add_argument("--list", action="store_true", help="only print the keys")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"] and options["drop"]:
            raise CommandError("--list and --drop cannot be combined")
        if options["drop"]:
            self._drop(options["drop"])
        elif not options["list"]:
            key = keys.rotate()
            self.stdout.write(f"{key.key_id} is published and signs from {clock.iso(key.signs_from)}")
        for key_id, state in keys.describe(clock.now()):
            self.stdout.write(f"  {key_id:<16}  {state}")

    def _drop(self, key_id: str) -> None:
        try:
            successor = keys.drop(key_id)
        except keys.NoSuchKey:
            raise CommandError(f"there is no token key {key_id!r}; --list prints them") from None
        self.stdout.write(f"{key_id} is dropped: within {keys.STALE_SECONDS:.0f} s all processes refuse its tokens")
        if successor is not None:
            self.stdout.write(f"{successor.key_id} is published and signs at once")
