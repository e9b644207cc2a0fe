-- Marks the entries of one page of remembered answers, or begins a gate anew.
--
-- KEYS  1 the gate (hash), 2 its marks (sorted set)
-- ARGV  1 the gate's epoch, 2 the epoch of the gate that it replaces (empty: none; the same: it goes on), 3 the moment
--       of the ledger up to which answers have been read, 4 how long a mark lasts in ms, 5 how long an unused gate is
--       kept in ms, 6 so many ms at most since marks were last written, 7… the entries' marks
-- Returns 1, or 0 where the gate is gone, another one has been begun, or the clock has jumped since its marks were
-- written, so that they do not end when they should: then nothing has changed.
--
-- Afterwards: the entries are marked and the gate knows how far its marks reach. One that has just begun has no counts
-- and refuses nobody. Its epoch stands among the marks too, so that marks lost by themselves are noticed.
local gate, marks = KEYS[1], KEYS[2]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if (redis.call('HGET', gate, 'epoch') or '') ~= ARGV[2] then
    return 0
end
if ARGV[1] ~= ARGV[2] then
    redis.call('DEL', gate, marks)
    redis.call('ZADD', marks, '+inf', 'epoch ' .. ARGV[1])
    redis.call('HSET', gate, 'epoch', ARGV[1])
elseif not redis.call('ZSCORE', marks, 'epoch ' .. ARGV[1])
    or math.abs(now - tonumber(redis.call('HGET', gate, 'marked_at') or 0)) > tonumber(ARGV[6]) then
    return 0
end
local ends = string.format('%.0f', now + ARGV[4])
for place = 7, #ARGV do
    redis.call('ZADD', marks, 'GT', ends, ARGV[place])
end
redis.call('HSET', gate, 'marked_until', ARGV[3], 'marked_at', string.format('%.0f', now))
redis.call('PEXPIRE', gate, ARGV[5])
redis.call('PEXPIRE', marks, ARGV[5])
return 1
