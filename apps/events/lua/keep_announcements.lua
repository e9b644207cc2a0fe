-- Keeps what is at hand of one event's announcements.
--
-- KEYS  1 the hot list (hash)
-- ARGV  1 the number of what was said last, 2 the list, 3 until when it is kept, in ms since 1970
-- Returns 1, or 0 where a newer list stands.
--
-- Afterwards: this list stands until then, unless a newer one stood.
local known = redis.call('HGET', KEYS[1], 'latest')
if known and tonumber(known) > tonumber(ARGV[1]) then
    return 0
end
redis.call('HSET', KEYS[1], 'latest', ARGV[1], 'said', ARGV[2])
redis.call('PEXPIREAT', KEYS[1], ARGV[3])
return 1
