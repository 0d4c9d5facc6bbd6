-- A token bucket in a hash. KEYS: the key. ARGV: capacity, tokens a second, cost.
-- Answers whether it is allowed, what remains, and after how many milliseconds to try again.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local capacity, rate, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]) or capacity, tonumber(bucket[2]) or now
local refill = math.floor(math.max(0, now - at) * rate / 1000)
tokens = math.min(capacity, tokens + refill)
at = at + refill * 1000 / rate
local allowed, after = 0, 0
if tokens >= cost then
    tokens = tokens - cost
    allowed = 1
else
    after = math.ceil((cost - tokens) * 1000 / rate)
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', at)
redis.call('PEXPIRE', KEYS[1], 2000 * capacity / rate)
return { allowed, tokens, after }
