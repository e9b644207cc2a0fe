"""Which form an API answer takes."""

from collections.abc import Iterable

from django.http import Http404
from rest_framework import exceptions
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer


class Negotiation(DefaultContentNegotiation):
    """`?format=` naming a form we do not have is not acceptable, rather than an address that does not exist."""

    def filter_renderers(self, renderers: Iterable[BaseRenderer], format: str) -> list[BaseRenderer]:  # noqa: A002
        try:
            return super().filter_renderers(renderers, format)
        except Http404 as error:
            raise exceptions.NotAcceptable from error
