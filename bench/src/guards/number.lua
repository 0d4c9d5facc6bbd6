-- A bucket as one number: when it would be full again, in microseconds. KEYS: the key. ARGV: capacity, tokens a second,
-- cost. Answers whether it is allowed, what remains, and after how many milliseconds to try again.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local whole = capacity * 1000000 / rate
local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1])) or now) + cost * 1000000 / rate
local over = full_at - now - whole
if over > 0 then return { 0, 0, math.ceil(over / 1000) } end
redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', string.format('%.0f', whole / 500))
return { 1, math.floor(-over * rate / 1000000), 0 }
