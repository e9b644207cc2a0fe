"""Addresses of the reservations app. The page patterns form the namespace `reservations`."""

from django.urls import path

from apps.reservations import api_views, views
from apps.reservations.page_header import api_views as header_api_views
from apps.reservations.page_header import views as header_views

page_urls = [
    path("events/<slug:slug>/choose", views.choose, name="choose"),
    path("events/<slug:slug>/choose/status.json", views.status, name="status"),
    path("reservations/", header_views.held, name="held"),
    path("reservations/<uuid:reservation_id>/", views.reservation, name="reservation"),
    path("reservations/<uuid:reservation_id>/release", views.release, name="release"),
]

api_urls = [
    path("me/header", header_api_views.HeaderView.as_view(), name="reservations_api_header"),
    path("events/<slug:event>/sections", api_views.SectionsView.as_view(), name="reservations_api_sections"),
    path("events/<slug:event>/sections/updates", api_views.UpdatesView.as_view(), name="reservations_api_updates"),
    path(
        "events/<slug:event>/sections/<slug:section>/seats",
        api_views.SeatsView.as_view(),
        name="reservations_api_seats",
    ),
    path("events/<slug:event>/offers", api_views.OffersView.as_view(), name="reservations_api_offers"),
    path("events/<slug:event>/reservations", api_views.ReservationsView.as_view(), name="reservations_api_hold"),
    path(
        "reservations/<uuid:reservation_id>", api_views.ReservationView.as_view(), name="reservations_api_reservation"
    ),
]
