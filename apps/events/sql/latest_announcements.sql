-- The last version number of each event and its newest announcements in their last versions: up to `limit` current and
-- up to `limit` retracted ones. An event without announcements has one row with null columns.
SELECT feed.event_id, feed.latest, listed.announcement, listed.number, listed.text, listed.posted_at, listed.at
FROM events_announcementfeed AS feed
LEFT JOIN LATERAL (
    (SELECT version.announcement, version.number, version.text, version.posted_at, version.at
     FROM events_announcementversion AS version
     WHERE version.event_id = feed.event_id AND version.text <> ''
       AND NOT EXISTS (SELECT FROM events_announcementversion AS newer
                       WHERE newer.event_id = version.event_id AND newer.announcement = version.announcement
                         AND newer.number > version.number)
     ORDER BY version.number DESC
     LIMIT %(limit)s)
    UNION ALL
    (SELECT version.announcement, version.number, version.text, version.posted_at, version.at
     FROM events_announcementversion AS version
     WHERE version.event_id = feed.event_id AND version.text = ''
     ORDER BY version.number DESC
     LIMIT %(limit)s)
) AS listed ON true
WHERE feed.event_id = ANY(%(event_ids)s::bigint[])
ORDER BY feed.event_id, listed.number DESC
