-- Debits buckets that all processes share, and tells what each of them owes.
-- KEYS the buckets, each the moment at which it is full again, in microseconds of this server's clock
-- ARGV 1 how long one request takes to flow back, 2 how long a whole bucket takes, both in microseconds; then for each
--      key how many requests were let through
-- Returns for each key what it owes now, in microseconds
-- Afterwards: nothing owes more than a whole bucket, and each key goes by itself once its bucket is full.
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
