-- Creates the partition of the view log for this day, if it does not exist.
SELECT events_add_view_partition(%(day)s::date)
