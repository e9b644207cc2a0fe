from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from apps.events.facade import EventView
    from tests.api.calls import Api


@pytest.fixture(params=["lane", pytest.param("site", marks=pytest.mark.slow)])
def api(request: pytest.FixtureRequest) -> "Api":
    """Calls the API through the fast path, which forwards other calls to the site. A second test, which is slow, calls
    the site directly."""
    # Imported here: this file is read before Django is set up.
    from tests.api.calls import Api

    return Api(by_lane=request.param == "lane")


@pytest.fixture
def concert(db: None) -> "EventView":
    """On sale: 5 rows of 10 seats in `hall`, and 20 places on the `floor`."""
    from tests import factories

    return factories.make_event("concert", general_admission=20)
