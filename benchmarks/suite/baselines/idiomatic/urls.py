from django.urls import path

from benchmarks.suite.baselines.idiomatic.views import ReservationsView

urlpatterns = [path("reservations", ReservationsView.as_view())]
