"""Posters as a browser sees them on a page: an image may fetch nothing, so each must be whole."""

from typing import Any

import pytest

from apps.events.demo.load import load_demo
from tests.support.events.factories import make_event

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.slow
def test_every_poster_of_the_catalogue_is_drawn(live_site: str, browser_page: Any) -> None:
    load_demo()
    make_event(name="An event that brings no poster & has a <long> name")
    page = browser_page()
    page.goto(live_site)
    sizes = page.evaluate(
        """async () => {
            for (const image of document.images) {
                image.loading = "eager";
                await image.decode();
            }
            return [...document.images].map((image) => [image.naturalWidth, image.naturalHeight]);
        }"""
    )
    assert sizes == [[400, 560]] * 4
