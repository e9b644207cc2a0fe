-- Public events whose page has changed since caches were last purged, with its state now and at that purge.
-- The state has no counts, only whether anything is left during the sale. Events purged a moment ago are skipped.
SELECT page.event_id, page.slug, page.status, page.version, page.stock,
       published.status, published.version, published.stock
FROM (
    SELECT event.id AS event_id, event.slug, event.status,
           md5(ROW(
               event.name, event.description, event.starts_at, event.currency, venue.name, venue.city, venue.timezone,
               on_sale.opens_at, on_sale.closes_at, on_sale.room_lobby_opens_at, on_sale.hold_seconds,
               on_sale.seats_per_reservation_max, on_sale.per_buyer_max, event.doors_at, event.ends_at,
               on_sale.presale_condition, on_sale.presale_until, on_sale.sign_up_closes_at,
               venue.address, venue.latitude, venue.longitude, organizer.name, organizer.contact_email,
               (SELECT max(legal_page.id) FROM events_legalpage AS legal_page
                WHERE legal_page.organizer_id = event.organizer_id),
               -- Prices are shown with fees and tax.
               on_sale.ticket_fee_minor, on_sale.ticket_fee_rate, on_sale.order_fee_minor,
               on_sale.waives_fees_when_free, on_sale.tax_rate, on_sale.tax_included,
               (SELECT string_agg(ROW(category.key, category.name, category.color, category.price_minor)::text, ','
                                  ORDER BY category.position, category.id)
                FROM events_category AS category WHERE category.event_id = event.id),
               (SELECT string_agg(ROW(section.slug, section.name, section.capacity,
                                      section.needs_access_since IS NOT NULL)::text, ','
                                  ORDER BY section.position, section.id)
                FROM events_section AS section WHERE section.event_id = event.id),
               (SELECT feed.latest FROM events_announcementfeed AS feed WHERE feed.event_id = event.id),
               -- Moving seats rewrites these links.
               (SELECT max(link.id)
                FROM events_section AS section
                JOIN events_section_categories AS link ON link.section_id = section.id
                WHERE section.event_id = event.id)
           )::text) AS version,
           CASE
               WHEN event.status <> 'published' OR on_sale.opens_at > moment.now OR on_sale.closes_at <= moment.now
                    OR event.starts_at <= moment.now
                   THEN ''
               -- The lowest status is 0, free: one index lookup. With EXISTS the planner expects
               -- an early match, and reads the whole table if all are sold.
               WHEN (SELECT min(seat.status) FROM reservations_seatinventory AS seat WHERE seat.event_id = event.id) = 0
                    OR EXISTS (SELECT FROM reservations_generaladmissioninventory AS place
                               WHERE place.event_id = event.id AND place.capacity > place.blocked + place.taken)
                   THEN 'free'
               ELSE 'gone'
           END AS stock
    FROM (SELECT clock_timestamp() AS now) AS moment
    CROSS JOIN events_event AS event
    JOIN events_venue AS venue ON venue.id = event.venue_id
    JOIN events_organizer AS organizer ON organizer.id = event.organizer_id
    JOIN events_onsale AS on_sale ON on_sale.event_id = event.id
    WHERE event.status <> 'draft' AND event.starts_at > moment.now - interval '1 day'
) AS page
LEFT JOIN reservations_toldpage AS published ON published.event_id = page.event_id
WHERE published.event_id IS NULL
   OR ((published.status, published.version, published.stock) IS DISTINCT FROM (page.status, page.version, page.stock)
       AND published.told_at < clock_timestamp() - make_interval(secs => %(rest_seconds)s))
ORDER BY page.event_id
LIMIT %(limit)s
