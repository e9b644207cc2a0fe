-- The current pages of an organizer: of each kind the latest version, unless it ends the page. Without their texts.
SELECT latest.kind, latest.id, organizer.slug, organizer.name
FROM (
    SELECT DISTINCT ON (kind) kind, id, organizer_id, text <> '' OR url <> '' AS is_shown
    FROM events_legalpage
    WHERE organizer_id = %(organizer_id)s
    ORDER BY kind, id DESC
) AS latest
JOIN events_organizer AS organizer ON organizer.id = latest.organizer_id
WHERE latest.is_shown
