-- The sections of these events, or these sections, in display order, one row per price category, highest price first.
SELECT section.event_id, section.id, section.slug, section.name, section.kind, section.capacity, section.category_id,
       section.needs_access_since IS NOT NULL,
       category.key, category.name, category.color, category.price_minor, category.tax_rate
FROM events_section AS section
LEFT JOIN events_section_categories AS link ON link.section_id = section.id
LEFT JOIN events_category AS category ON category.id = link.category_id
WHERE (%(event_ids)s::bigint[] IS NULL OR section.event_id = ANY(%(event_ids)s::bigint[]))
  AND (%(section_ids)s::bigint[] IS NULL OR section.id = ANY(%(section_ids)s::bigint[]))
ORDER BY section.event_id, section.position, section.id, category.price_minor DESC, category.id
