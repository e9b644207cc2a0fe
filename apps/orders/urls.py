"""Addresses of the orders app. The page patterns form the namespace `orders`, the API's carry it in their names."""

from django.urls import path

from apps.orders import api_views, views
from apps.orders.checkin import api_views as checkin_api_views
from apps.orders.checkin import views as checkin_views
from apps.orders.payments.providers.sandbox import page as sandbox_page
from apps.orders.webhooks import api_views as organizers

page_urls = [
    path("reservations/<uuid:reservation_id>/checkout", views.checkout, name="checkout"),
    path("orders/<uuid:order_id>/", views.order, name="order"),
    path("orders/<uuid:order_id>/cancel", views.cancel, name="cancel"),
    path("orders/<uuid:order_id>/return", views.return_tickets, name="return"),
    path("orders/<uuid:order_id>/tickets.pdf", views.tickets_pdf, name="tickets_pdf"),
    path("sandbox/pay/<str:token>", sandbox_page.pay, name="sandbox_pay"),
    path("orders/<uuid:order_id>/invoices/<slug:number>.pdf", views.paper, name="paper"),
    path("orders/<uuid:order_id>/event.ics", views.calendar_file, name="calendar_file"),
    path("orders/<uuid:order_id>/tickets/<slug:code>/reissue", views.reissue, name="reissue"),
    path("tickets/", views.my_tickets, name="my_tickets"),
    path("tickets/<slug:code>/", views.ticket, name="ticket"),
    path("tickets/<slug:code>/qr.svg", views.ticket_qr, name="ticket_qr"),
    path("check-in/worker.js", checkin_views.worker, name="check_in_worker"),
    path("check-in/<slug:slug>/", checkin_views.check_in, name="check_in"),
]

api_urls = [
    path("reservations/<uuid:reservation_id>/quote", api_views.Quote.as_view(), name="orders_api_quote"),
    path("reservations/<uuid:reservation_id>/checkout", api_views.Checkout.as_view(), name="orders_api_checkout"),
    path("orders", api_views.OrderList.as_view(), name="orders_api_orders"),
    path("orders/<uuid:order_id>", api_views.OrderDetail.as_view(), name="orders_api_order"),
    path("orders/<uuid:order_id>/cancel", api_views.CancelOrder.as_view(), name="orders_api_cancel"),
    path("organizer/messages", organizers.Messages.as_view(), name="orders_api_organizer_messages"),
    path(
        "organizer/messages/<uuid:receipt_handle>",
        organizers.ReceivedMessage.as_view(),
        name="orders_api_organizer_message",
    ),
    path("orders/<uuid:order_id>/refunds", api_views.ReturnTickets.as_view(), name="orders_api_refunds"),
    path("webhooks/payments/<slug:provider>", api_views.PaymentWebhook.as_view(), name="orders_api_payment_webhook"),
    path("events/<slug:event>/check-in", checkin_api_views.CheckIn.as_view(), name="orders_api_check_in"),
    path(
        "events/<slug:event>/check-in/batch",
        checkin_api_views.CheckInBatch.as_view(),
        name="orders_api_check_in_batch",
    ),
]
