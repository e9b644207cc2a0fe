-- The data of one public event's page, or of a draft's for its preview, without sections and availability, and the time
-- of this reading.
SELECT event.id, on_sale.hold_seconds, on_sale.seats_per_reservation_max, on_sale.per_buyer_max,
       on_sale.presale_condition, on_sale.presale_until, on_sale.sign_up_closes_at,
       event.slug, event.name, event.description, venue.name, venue.city, venue.timezone, event.starts_at, event.status,
       on_sale.opens_at, on_sale.closes_at, on_sale.room_lobby_opens_at, event.currency,
       ARRAY(SELECT price_minor FROM events_category WHERE event_id = event.id ORDER BY id),
       ARRAY(SELECT tax_rate FROM events_category WHERE event_id = event.id ORDER BY id),
       event.summary, event.performers, event.tags, event.language,
       on_sale.ticket_fee_minor, on_sale.ticket_fee_rate, on_sale.order_fee_minor, on_sale.waives_fees_when_free,
       on_sale.tax_rate, on_sale.tax_included,
       organizer.slug, organizer.name, organizer.contact_email,
       venue.address, venue.latitude, venue.longitude, event.doors_at, event.ends_at,
       on_sale.room_rate_per_second IS NOT NULL,
       (
           SELECT (change.before ->> 'starts_at')::timestamptz
           FROM events_eventchange AS change
           WHERE change.event_id = event.id AND change.kind = 'schedule'
             AND change.before ->> 'starts_at' <> change.after ->> 'starts_at'
           ORDER BY change.id DESC
           LIMIT 1
       ),
       ARRAY(
           SELECT latest.kind
           FROM (
               SELECT DISTINCT ON (kind) kind, text <> '' OR url <> '' AS is_set
               FROM events_legalpage
               WHERE organizer_id = organizer.id
               ORDER BY kind, id DESC
           ) AS latest
           WHERE latest.is_set
       ),
       clock_timestamp()
FROM events_event AS event
JOIN events_venue AS venue ON venue.id = event.venue_id
JOIN events_organizer AS organizer ON organizer.id = event.organizer_id
JOIN events_onsale AS on_sale ON on_sale.event_id = event.id
WHERE event.slug = %(slug)s::text AND (event.status = 'draft') = %(is_draft)s::boolean
