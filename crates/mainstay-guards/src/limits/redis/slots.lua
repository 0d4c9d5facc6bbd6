-- Carries out the claims of a batch on slots, by the time of this server. The law is that of
-- mainstay_core::limits::leases; the tests run both on the same claims.
--
-- KEYS: the key of each claim. ARGV: of each claim the verb (acquire, renew, release, look), the token, for how long, and
-- how many slots there are.
-- Answers, for each claim: whether it is done (-1 when the key is something else), how many slots are taken, and when there
-- will be one.
--
-- What is taken of a key is a hash: of each token `since/ttl`.

local call, floor = redis.call, math.floor
-- Clocks that are asked one after another may differ by so much without having been put back.
local WOBBLE = 1000

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)

local function load(key)
    local row = redis.pcall('HGETALL', key)
    if row.err then return nil end
    local leases, over = {}, {}
    for at = 1, #row, 2 do
        local since, ttl = string.match(row[at + 1], '^(%-?%d+)/(%d+)$')
        local lease = { token = row[at], since = tonumber(since), ttl = tonumber(ttl) }
        if now < lease.since - WOBBLE then
            lease.since, lease.changed = now, true
        end
        if lease.since + lease.ttl > now then
            leases[#leases + 1] = lease
        else
            over[#over + 1] = lease.token
        end
    end
    return leases, over
end

local function save(key, leases, over)
    for _, token in ipairs(over) do call('HDEL', key, token) end
    local left = 0
    for _, lease in ipairs(leases) do
        if lease.changed then
            call('HSET', key, lease.token, string.format('%.0f/%.0f', lease.since, lease.ttl))
        end
        left = math.max(left, lease.since + lease.ttl - now)
    end
    if left > 0 then call('PEXPIRE', key, string.format('%.0f', left)) end
end

local function find(leases, token)
    for at, lease in ipairs(leases) do
        if lease.token == token then return at end
    end
end

local function wait(leases, slots)
    if #leases < slots then return 0 end
    local left = {}
    for at, lease in ipairs(leases) do left[at] = lease.since + lease.ttl - now end
    table.sort(left)
    return left[#leases - slots + 1]
end

local answers, at = {}, 1
for number = 1, #KEYS do
    local key, verb, token = KEYS[number], ARGV[at], ARGV[at + 1]
    local ttl, slots = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
    at = at + 4
    local leases, over = load(key)
    local done, in_use, after = -1, 0, 0
    if leases then
        local held = find(leases, token)
        done = 0
        if verb == 'look' then
            done = #leases < slots and 1 or 0
        elseif verb == 'release' then
            if held then
                over[#over + 1] = token
                table.remove(leases, held)
                done = 1
            end
        elseif held then
            leases[held] = { token = token, since = now, ttl = ttl, changed = true }
            done = 1
        elseif verb == 'acquire' and #leases < slots then
            leases[#leases + 1] = { token = token, since = now, ttl = ttl, changed = true }
            done = 1
        end
        if verb ~= 'look' then save(key, leases, over) end
        in_use, after = #leases, wait(leases, slots)
    end
    local first = number * 3
    answers[first - 2], answers[first - 1], answers[first] = done, in_use, after
end
return answers
