-- Public events as the apps above see them, soonest first: those with these slugs, or all. Without the poster and the
-- description, which are long and not part of this view. `_event_view` reads the columns.
SELECT event.id, event.slug, event.name, venue.name, venue.city, venue.timezone, event.starts_at, event.currency,
       event.status,
       on_sale.opens_at, on_sale.closes_at, on_sale.hold_seconds, on_sale.payment_seconds, on_sale.grace_seconds,
       on_sale.seats_per_reservation_max, on_sale.per_buyer_max, on_sale.oversell,
       on_sale.room_rate_per_second, on_sale.room_active_max, on_sale.room_lobby_opens_at,
       on_sale.ticket_fee_minor, on_sale.ticket_fee_rate, on_sale.order_fee_minor, on_sale.waives_fees_when_free,
       on_sale.tax_rate, on_sale.tax_included,
       on_sale.presale_condition, on_sale.presale_until, on_sale.sign_up_closes_at, event.organizer_id,
       event.doors_at, event.ends_at, on_sale.terms_since, event.publishes_report, venue.address
FROM events_event AS event
JOIN events_venue AS venue ON venue.id = event.venue_id
JOIN events_onsale AS on_sale ON on_sale.event_id = event.id
WHERE (%(slugs)s::text[] IS NULL OR event.slug = ANY(%(slugs)s::text[])) AND event.status <> 'draft'
ORDER BY event.starts_at, event.slug
