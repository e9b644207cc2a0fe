-- The shards with a window to count: a full one, or a smaller one whose time has passed.
SELECT shard_end.shard
FROM events_viewshard AS shard_end LEFT JOIN events_viewcursor AS cursor ON cursor.shard = shard_end.shard
WHERE shard_end.last_position - coalesce(cursor.position, 0) >= %(size_max)s
   OR (
       shard_end.last_position > coalesce(cursor.position, 0)
       AND coalesce(cursor.counted_at, '-infinity') <= clock_timestamp() - make_interval(secs => %(seconds)s)
   )
ORDER BY shard_end.shard
