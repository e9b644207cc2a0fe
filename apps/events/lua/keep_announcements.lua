-- Caches the announcement feed of one event unless a newer one is cached.
--
-- KEYS  1 the feed (hash)
-- ARGV  1 the number of the last version, 2 the feed, 3 when it expires, in ms since 1970
-- Returns 1, or 0 if a newer feed is cached.
--
-- Afterwards: the cached feed has this version or a newer one.
local known = redis.call('HGET', KEYS[1], 'latest')
if known and tonumber(known) > tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'latest', ARGV[1], 'said', ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
