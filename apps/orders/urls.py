"""URLs of the orders app. Pages use the namespace `orders`; API routes have the prefix in their names."""

from django.urls import path

from apps.orders.checkin import api_views as checkin_api_views
from apps.orders.checkin import views as checkin_views
from apps.orders.checkout import api_views as checkout_api_views
from apps.orders.checkout import views as checkout_views
from apps.orders.feeds import api_views as feed_api_views
from apps.orders.lookup import api_views as lookup_api_views
from apps.orders.lookup import views as lookup_views
from apps.orders.order_pages import api_views as order_api_views
from apps.orders.order_pages import confirmation as confirmation_views
from apps.orders.order_pages import views as order_views
from apps.orders.payments.providers.sandbox import page as sandbox_page
from apps.orders.provider_sync import api_views as provider_api_views
from apps.orders.reports import api_views as report_api_views
from apps.orders.reports import views as report_views
from apps.orders.returns import api_views as return_api_views
from apps.orders.returns import views as return_views
from apps.orders.tickets import views as ticket_views
from apps.orders.transfers import api_views as transfer_api_views
from apps.orders.transfers import views as transfer_views
from apps.orders.webhooks import api_views as organizers

page_urls = [
    path("reservations/<uuid:reservation_id>/checkout", checkout_views.checkout, name="checkout"),
    path("orders/find", lookup_views.find, name="find"),
    path("orders/<uuid:order_id>/", order_views.order, name="order"),
    path("orders/<uuid:order_id>/cancel", order_views.cancel, name="cancel"),
    path("orders/<uuid:order_id>/confirm", confirmation_views.confirm, name="confirm"),
    path("orders/<uuid:order_id>/return", return_views.return_tickets, name="return"),
    path("orders/<uuid:order_id>/tickets.pdf", ticket_views.tickets_pdf, name="tickets_pdf"),
    path("sandbox/pay/<str:token>", sandbox_page.pay, name="sandbox_pay"),
    path("orders/<uuid:order_id>/invoices/<slug:number>.pdf", order_views.invoice, name="paper"),
    path("orders/<uuid:order_id>/event.ics", order_views.calendar_file, name="calendar_file"),
    path("orders/<uuid:order_id>/tickets/<slug:code>/reissue", ticket_views.reissue, name="reissue"),
    path("orders/<uuid:order_id>/tickets/<slug:code>/transfer", transfer_views.offer, name="transfer"),
    path("orders/<uuid:order_id>/transfers/<uuid:transfer_id>/withdraw", transfer_views.withdraw, name="withdraw"),
    path("transfers/<uuid:transfer_id>/", transfer_views.transfer, name="transfer_offer"),
    path("tickets/", order_views.my_tickets, name="my_tickets"),
    path("tickets/<slug:code>/", ticket_views.ticket, name="ticket"),
    path("tickets/<slug:code>/ticket.pdf", ticket_views.single_ticket_pdf, name="ticket_pdf"),
    path("tickets/<slug:code>/qr.svg", ticket_views.ticket_qr, name="ticket_qr"),
    path("events/<slug:slug>/report", report_views.report, name="report"),
    path("events/<slug:slug>/report.pdf", report_views.report_pdf, name="report_pdf"),
    path(".well-known/fairgate-report-keys.json", report_views.report_keys, name="report_keys"),
    path("check-in/worker.js", checkin_views.service_worker, name="check_in_worker"),
    path("check-in/<slug:slug>/", checkin_views.check_in, name="check_in"),
]

api_urls = [
    path("reservations/<uuid:reservation_id>/quote", checkout_api_views.Quote.as_view(), name="orders_api_quote"),
    path(
        "reservations/<uuid:reservation_id>/checkout", checkout_api_views.Checkout.as_view(), name="orders_api_checkout"
    ),
    path("orders", order_api_views.OrderList.as_view(), name="orders_api_orders"),
    path("orders/find", lookup_api_views.FindOrders.as_view(), name="orders_api_find"),
    path("orders/<uuid:order_id>", order_api_views.OrderDetail.as_view(), name="orders_api_order"),
    path("orders/<uuid:order_id>/cancel", order_api_views.CancelOrder.as_view(), name="orders_api_cancel"),
    path(
        "orders/<uuid:order_id>/confirmation",
        confirmation_views.RequestConfirmation.as_view(),
        name="orders_api_confirmation",
    ),
    path("organizer/messages", organizers.Messages.as_view(), name="orders_api_organizer_messages"),
    path(
        "organizer/messages/<uuid:receipt_handle>",
        organizers.ReceivedMessage.as_view(),
        name="orders_api_organizer_message",
    ),
    path("feeds", feed_api_views.Feeds.as_view(), name="orders_api_feeds"),
    path("feeds/<slug:feed>", feed_api_views.FeedDetail.as_view(), name="orders_api_feed"),
    path("feeds/<slug:feed>/messages", feed_api_views.FeedMessages.as_view(), name="orders_api_feed_messages"),
    path(
        "feeds/<slug:feed>/messages/<str:receipt_handle>",
        feed_api_views.ReceivedFeedMessage.as_view(),
        name="orders_api_feed_message",
    ),
    path("feeds/<slug:feed>/deletions", feed_api_views.FeedDeletions.as_view(), name="orders_api_feed_deletions"),
    path("feeds/<slug:feed>/dead-letters", feed_api_views.DeadLetters.as_view(), name="orders_api_dead_letters"),
    path(
        "feeds/<slug:feed>/dead-letters/redrive",
        feed_api_views.RedriveDeadLetters.as_view(),
        name="orders_api_redrive",
    ),
    path("orders/<uuid:order_id>/refunds", return_api_views.ReturnTickets.as_view(), name="orders_api_refunds"),
    path("orders/<uuid:order_id>/transfers", transfer_api_views.Transfers.as_view(), name="orders_api_transfers"),
    path(
        "orders/<uuid:order_id>/transfers/<uuid:transfer_id>",
        transfer_api_views.TransferDetail.as_view(),
        name="orders_api_transfer",
    ),
    path(
        "webhooks/payments/<slug:provider>",
        provider_api_views.PaymentWebhook.as_view(),
        name="orders_api_payment_webhook",
    ),
    path("events/<slug:event>/report", report_api_views.Report.as_view(), name="orders_api_report"),
    path("events/<slug:event>/check-in", checkin_api_views.CheckIn.as_view(), name="orders_api_check_in"),
    path(
        "events/<slug:event>/check-in/batch",
        checkin_api_views.CheckInBatch.as_view(),
        name="orders_api_check_in_batch",
    ),
]
