"""Recent searches: the last ten of an account or browser, saved in PostgreSQL, read from a copy in Redis.

owners                 whose searches: an account or a browser with its cookie; the key of the copy
history                each change, in one transaction with its outbox message; reads from PostgreSQL
redis_copy             the copy in Redis: the outbox's handler, reads, repair
archive                searches older than six months
personal_data          export and erasure
views, api_views       the page without scripts; the API on the site
async_views            the same reads on the fast path

**Reads are never stale.** Each change locks the row of the history, raises its version, sets a new random stamp, and
commits together with the searches and an outbox message. The handler reads id, version, stamp and searches in one
statement and writes them to Redis by one script, as one list whose first element is the header `id.version.stamp`. A
read takes the header from PostgreSQL (one row by its unique key) and the list from Redis, in any order, and answers
with the list only if both headers are equal; otherwise it reads the searches from PostgreSQL and has the copy
repaired.

- Equal headers mean equal searches: a header names one committed state. Two changes of one history are serialized by
  its row lock, so they have different versions. An owner whose history was erased gets a row with another id. After a
  restored backup, ids and versions occur again, but not the stamps.
- So an answer is the committed state at the moment when the read's statement began. It includes every change that had
  been confirmed before the read was sent, in whatever order the outbox delivers, and if Redis is lost, restarted
  empty, restarted with an old save, or emptied by a failover: then the headers differ, or there is none.
- Messages may be handled late, twice and in any order: a handler writes the state that it reads, never what its
  message says. Of two handlers that run at once, the script keeps the higher version, so the copy does not go back.
  If it did, a read would see a different header.
- A copy that is ahead of PostgreSQL (a restored backup) would refuse every older version. The repair reads the copy's
  header before PostgreSQL: if that is newer, its version was lost, and the script may replace exactly this header.

PostgreSQL is asked in each read because Redis cannot prove that it has not lost the last write. For an account the
request needs PostgreSQL anyway, to check the session; the header comes in the same batch. See docs/adr.
"""
