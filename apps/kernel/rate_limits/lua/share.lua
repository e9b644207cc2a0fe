-- Debits buckets that all processes share, and returns the debt of each.
-- KEYS the buckets; each value is the time at which the bucket is full again, in microseconds of this server's clock
-- ARGV 1 refill time of one request, 2 refill time of a whole bucket, both in microseconds; then for each key the number
--      of admitted requests
-- Returns for each key its debt, in microseconds
-- Afterwards: no debt exceeds a whole bucket, and each key expires once its bucket is full.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local interval, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local owed = {}
for index, key in ipairs(KEYS) do
    local full_at = tonumber(redis.call('GET', key) or now) or now
    local owes = math.min(math.max(full_at - now, 0) + tonumber(ARGV[index + 2]) * interval, window)
    redis.call('SET', key, string.format('%.0f', now + owes), 'PX', math.ceil(owes / 1000) + 1000)
    owed[index] = math.floor(owes)
end
return owed
