"""Addresses of the queue app. The page patterns form the namespace `queue`."""

from django.urls import path

from apps.queue import api_views, views

page_urls = [
    path("events/<slug:slug>/join", views.join, name="join"),
    path("events/<slug:slug>/wait", views.wait, name="wait"),
    path("events/<slug:slug>/leave", views.leave, name="leave"),
]

api_urls = [
    path("events/<slug:event>/queue", api_views.QueueView.as_view(), name="queue_api_queue"),
    path("events/<slug:event>/queue/status", api_views.QueueStatusView.as_view(), name="queue_api_status"),
]
