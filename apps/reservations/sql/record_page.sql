-- Records the page state that caches are being purged for; changes no row if another process recorded one meanwhile.
INSERT INTO reservations_toldpage AS published (event_id, status, version, stock, told_at)
VALUES (%(event_id)s, %(status)s, %(version)s, %(stock)s, clock_timestamp())
ON CONFLICT (event_id) DO UPDATE
SET status = excluded.status, version = excluded.version, stock = excluded.stock, told_at = excluded.told_at
WHERE (published.status, published.version, published.stock) = (%(was_status)s, %(was_version)s, %(was_stock)s)
