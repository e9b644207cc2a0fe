-- What the public plan of an event shows besides its seats, as one text: currency, fees and taxes, prices, capacities,
-- required access codes, and the newest link between a section and a category, since moving seats rewrites the links.
SELECT ROW(
    event.currency, on_sale.ticket_fee_minor, on_sale.ticket_fee_rate, on_sale.order_fee_minor,
    on_sale.waives_fees_when_free, on_sale.tax_rate, on_sale.tax_included,
    (SELECT string_agg(ROW(category.key, category.name, category.color, category.price_minor, category.tax_rate)::text,
                       ',' ORDER BY category.position, category.id)
     FROM events_category AS category WHERE category.event_id = event.id),
    (SELECT string_agg(ROW(section.capacity, section.needs_access_since IS NOT NULL)::text,
                       ',' ORDER BY section.position, section.id)
     FROM events_section AS section WHERE section.event_id = event.id),
    (SELECT max(link.id)
     FROM events_section AS section
     JOIN events_section_categories AS link ON link.section_id = section.id
     WHERE section.event_id = event.id)
)::text
FROM events_event AS event
LEFT JOIN events_onsale AS on_sale ON on_sale.event_id = event.id
WHERE event.id = %(event_id)s
