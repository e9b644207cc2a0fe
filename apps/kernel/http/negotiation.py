"""Content negotiation of the API."""

from collections.abc import Iterable

from django.http import Http404
from rest_framework import exceptions
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer


class Negotiation(DefaultContentNegotiation):
    """Responds to an unknown `?format=` with 406; DRF's own class responds with 404."""

    def filter_renderers(self, renderers: Iterable[BaseRenderer], format: str) -> list[BaseRenderer]:  # noqa: A002
        try:
            return super().filter_renderers(renderers, format)
        except Http404 as error:
            raise exceptions.NotAcceptable from error
