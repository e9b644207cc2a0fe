-- Of these events the number of what was said last, and the newest announcements in their last versions: so many that
-- stand, and so many that were taken back. An event at which none is left to say has one row without an announcement.
SELECT feed.event_id, feed.latest, said.announcement, said.number, said.text, said.posted_at, said.at
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
) AS said ON true
WHERE feed.event_id = ANY(%(event_ids)s::bigint[])
ORDER BY feed.event_id, said.number DESC
