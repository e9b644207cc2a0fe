-- How the entries and the draw fit the room's row. The published proof cannot show this, because it contains only
-- numbers below the room's next one. One statement, so one snapshot.
SELECT room.next_number,
       room.lobby_count,
       draw.drawn_at,
       draw.numbered_at,
       entries.highest,
       entries.lobby,
       entries.lobby_beyond,
       entries.late_below,
       (SELECT count(*) FROM queue_drawnplace AS place WHERE place.event_id = room.event_id)
FROM queue_waitingroom AS room
LEFT JOIN queue_draw AS draw ON draw.event_id = room.event_id
CROSS JOIN LATERAL (
    SELECT max(number) AS highest,
           count(*) FILTER (WHERE in_lobby) AS lobby,
           min(number) FILTER (WHERE in_lobby AND number > room.lobby_count) AS lobby_beyond,
           min(number) FILTER (WHERE NOT in_lobby AND number <= room.lobby_count) AS late_below
    FROM queue_queueentry
    WHERE event_id = room.event_id
) AS entries
WHERE room.event_id = %(event_id)s
