-- Replaces the recent searches of one owner by those of a version, unless a newer version is kept.
--
-- KEYS  1 the list: the header "id.version.stamp" of the history, then its searches, newest first
-- ARGV  1 the header, 2 a header that may be replaced although it is newer (a version that PostgreSQL has lost; empty:
--       none), 3 how long the list is kept, in ms, 4 and following: the searches, newest first, none twice
-- Returns 1, or 0 if a newer version is kept.
--
-- Afterwards: the list is that of ARGV 1, or of a newer version.
local function parse(header)
    local id, version = string.match(header, '^(%d+)%.(%d+)%.')
    return tonumber(id), tonumber(version)
end
local known = redis.call('LINDEX', KEYS[1], 0)
if known and known ~= ARGV[2] then
    local known_id, known_version = parse(known)
    local id, version = parse(ARGV[1])
    if known_id and (known_id > id or (known_id == id and known_version > version)) then
        return 0
    end
end
redis.call('DEL', KEYS[1])
redis.call('RPUSH', KEYS[1], ARGV[1])
for index = 4, #ARGV do
    redis.call('RPUSH', KEYS[1], ARGV[index])
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
