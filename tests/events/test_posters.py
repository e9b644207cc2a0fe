"""Posters in a browser: an image on a page cannot load other files, so a poster must be self-contained."""

from typing import Any

import pytest

from apps.events.demo.load import load_demo
from tests.support.events.factories import make_event

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.slow
def test_every_poster_of_the_catalog_is_drawn(live_site: str, browser_page: Any) -> None:
    load_demo()
    make_event(name="An event without a poster & with a <long> name")
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
