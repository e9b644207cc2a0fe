from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from apps.events.facade import EventView
    from tests.api.calls import Api


@pytest.fixture(params=["site", "lane"])
def api(request: pytest.FixtureRequest) -> "Api":
    """Every test of the API goes through both doors."""
    # Imported here: this file is read before Django is set up.
    from tests.api.calls import Api

    return Api(by_lane=request.param == "lane")


@pytest.fixture
def concert(db: None) -> "EventView":
    """On sale: 5 rows of 10 seats in `hall`, and 20 places on the `floor`."""
    from tests import factories

    return factories.make_event("concert", general_admission=20)
