-- Events to come whose document in the search index is missing, or should not be there, without a note that they have changed.
SELECT coalesce(event.id, document.event_id)
FROM (
    SELECT event.id
    FROM events_event AS event
    JOIN events_onsale AS on_sale ON on_sale.event_id = event.id
    WHERE event.status <> 'draft' AND event.starts_at > clock_timestamp()
      AND (%(event_id)s::bigint IS NULL OR event.id = %(event_id)s::bigint)
) AS event
FULL JOIN (
    SELECT event_id
    FROM events_searchdocument
    WHERE is_live AND starts_at > clock_timestamp()
      AND (%(event_id)s::bigint IS NULL OR event_id = %(event_id)s::bigint)
) AS document ON document.event_id = event.id
WHERE (event.id IS NULL OR document.event_id IS NULL)
  AND NOT EXISTS (
      SELECT FROM events_searchchange AS change WHERE change.event_id = coalesce(event.id, document.event_id)
  )
LIMIT %(limit)s::bigint
