-- Marks the entries of one page of stored hold responses, or begins a gate anew.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set), 3 its latest changes (list)
-- ARGV  1 the gate's epoch, 2 the epoch of the gate that it replaces (empty: none; the same: it continues), 3 the
--       ledger's time up to which responses have been read, 4 lifetime of a mark in ms, 5 expiry of an unused gate in
--       ms, 6 maximum ms since marks were last written, 7… the entries' marks
-- Returns 1. Returns 0 and changes nothing if the gate is gone or replaced, or if the clock has jumped since its marks
-- were written, so that they would expire at the wrong time.
--
-- Afterwards: the entries are marked and the gate records how far its marks reach. A new gate has no counts and refuses
-- nothing. Its epoch is also stored among the marks, so that a loss of the marks alone is detected.
local gate, marks = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if (redis.call('HGET', gate, 'epoch') or '') ~= ARGV[2] then
    return 0
end
if ARGV[1] ~= ARGV[2] then
    redis.call('DEL', gate, marks, KEYS[3])
    redis.call('ZADD', marks, '+inf', 'epoch ' .. ARGV[1])
    redis.call('HSET', gate, 'epoch', ARGV[1])
elseif not redis.call('ZSCORE', marks, 'epoch ' .. ARGV[1])
    or math.abs(now - tonumber(redis.call('HGET', gate, 'marked_at') or 0)) > tonumber(ARGV[6]) then
    return 0
end
local ends = string.format('%.0f', now + ARGV[4])
for index = 7, #ARGV do
    redis.call('ZADD', marks, 'GT', ends, ARGV[index])
end
redis.call('HSET', gate, 'marked_until', ARGV[3], 'marked_at', string.format('%.0f', now))
redis.call('PEXPIRE', gate, ARGV[5])
redis.call('PEXPIRE', marks, ARGV[5])
return 1
