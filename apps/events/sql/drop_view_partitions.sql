-- Drops the partitions of the view log for days before this one, and returns how many.
SELECT events_drop_view_partitions(%(before)s::date)
