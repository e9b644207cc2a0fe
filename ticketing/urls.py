"""All URLs of the site. Pages are in their app's namespace; the API is under /api."""

from django.contrib import admin
from django.urls import include, path

from apps.accounts import urls as accounts
from apps.events import urls as events
from apps.orders import urls as orders
from apps.queue import urls as queue
from apps.reservations import urls as reservations
from ticketing.operations import health, mailbox, security_contact
from ticketing.operations.api_description import Description
from ticketing.operations.api_reference import api_reference

handler400 = "apps.kernel.http.middleware.bad_request"
handler500 = "apps.kernel.http.middleware.server_error"

api = [
    *accounts.api_urls,
    *events.api_urls,
    *queue.api_urls,
    *reservations.api_urls,
    *orders.api_urls,
    path("schema", Description.as_view(), name="schema"),
    path("docs", api_reference, name="api_docs"),
]

urlpatterns = [
    *health.root_urls,
    *security_contact.root_urls,
    *events.root_urls,
    *mailbox.root_urls,
    path("admin/", admin.site.urls),
    path("api/", include(api)),
    *accounts.page_urls,
    path("", include((events.page_urls, "events"))),
    path("", include((queue.page_urls, "queue"))),
    path("", include((reservations.page_urls, "reservations"))),
    path("", include((orders.page_urls, "orders"))),
]
