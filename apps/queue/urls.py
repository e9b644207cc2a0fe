"""URLs of the queue app. The page patterns form the namespace `queue`."""

from django.urls import path

from apps.queue import api_views, views
from apps.queue.entries import vip_link_views
from apps.queue.fairness import api_views as fairness_api
from apps.queue.fairness import views as fairness_page

page_urls = [
    path("events/<slug:slug>/join", views.join, name="join"),
    path("events/<slug:slug>/wait", views.wait, name="wait"),
    path("events/<slug:slug>/leave", views.leave, name="leave"),
    path("events/<slug:slug>/fairness", fairness_page.fairness, name="fairness"),
    path("events/<slug:slug>/vip/<str:token>", vip_link_views.vip, name="vip"),
]

api_urls = [
    path("events/<slug:event>/queue", api_views.QueueView.as_view(), name="queue_api_queue"),
    path("events/<slug:event>/queue/status", api_views.QueueStatusView.as_view(), name="queue_api_status"),
    path("events/<slug:event>/queue/proof", fairness_api.ProofView.as_view(), name="queue_api_proof"),
    path("events/<slug:event>/queue/receipt", fairness_api.ReceiptView.as_view(), name="queue_api_receipt"),
    path("receipt-keys", fairness_api.ReceiptKeysView.as_view(), name="queue_api_receipt_keys"),
]
