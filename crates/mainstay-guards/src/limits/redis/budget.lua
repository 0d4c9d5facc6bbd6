-- Decides for all callers of a batch at once, by the time of this server. The arithmetic is that of
-- mainstay_core::limits; the tests run both on the same calls.
--
-- KEYS: the key of each call. ARGV: how many limits there are; of each its text, `kind/capacity/rate/period/start`, and
-- time to live; then of each call the number of its limit, the verb and the amount, or only once when they are the same
-- for all.
-- Answers, for each call: whether it is allowed, what remains, and when to try again: -1 for never, -2 when the key is
-- something else.
--
-- A budget is a hash: `tokens`, `last_ms`, `carry` (parts of the next token; of a sliding window, what was used in the
-- window before) and `law` (the limit it was written under; in front of it, until when the key is blocked). Numbers are
-- handed to commands as text, written as the integers they are: Redis takes longer to write a double than to do what is
-- asked.

local call, floor, fmod, max, min = redis.call, math.floor, math.fmod, math.max, math.min
local format = string.format

local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local now_text = format('%d', now)

-- The plain case: a bucket that was written under the same limit and is not blocked is asked for tokens. Nothing when it
-- is not that.
local function plain(key, asked_law, capacity, rate, period, ttl_text, cost)
    local row = redis.pcall('HMGET', key, 'tokens', 'last_ms', 'carry', 'law')
    if row.err then return -2, 0 end
    local most = capacity * period
    local law, left = row[4], most
    if law then
        local gone = now - row[2]
        if law ~= asked_law or gone < 0 then return nil end
        left = row[1] * period + row[3]
        if left < 0 then return nil end
        if gone > 9007199254740992 / rate or gone * rate >= most - left then
            left = most
        else
            left = left + gone * rate
        end
    end
    local wanted = cost * period
    if cost > capacity or left < wanted then
        if law then call('PEXPIRE', key, ttl_text) end
        local remaining = (left - fmod(left, period)) / period
        if cost > capacity then return -1, remaining end
        local over = fmod(wanted - left, rate)
        return (wanted - left - over) / rate + (over > 0 and 1 or 0), remaining
    end
    left = left - wanted
    local carry = fmod(left, period)
    local tokens = (left - carry) / period
    local tokens_text, carry_text = format('%d', tokens), carry == 0 and '0' or format('%d', carry)
    if not law then
        call('HSET', key, 'tokens', tokens_text, 'last_ms', now_text, 'carry', carry_text, 'law', asked_law)
    elseif row[3] ~= carry_text then
        call('HSET', key, 'tokens', tokens_text, 'last_ms', now_text, 'carry', carry_text)
    else
        call('HSET', key, 'tokens', tokens_text, 'last_ms', now_text)
    end
    call('PEXPIRE', key, ttl_text)
    return 0, tokens
end

-- A lone call is most often that, and spares itself all the rest.
if #KEYS == 1 and ARGV[5] == 'c' then
    local capacity, rate, period = string.match(ARGV[2], '^t/(%d+)/(%d+)/(%d+)/')
    if capacity then
        capacity, rate, period = tonumber(capacity), tonumber(rate), tonumber(period)
        local after, remaining = plain(KEYS[1], ARGV[2], capacity, rate, period, ARGV[3], tonumber(ARGV[6]))
        if after then return { after == 0 and 1 or 0, remaining, after } end
    end
end

local function read_law(law)
    local kind, capacity, rate, period, start = string.match(law, '^(%a)/(%d+)/(%d+)/(%d+)/(%d+)$')
    return {
        law = law, kind = kind, capacity = tonumber(capacity), rate = tonumber(rate),
        period = tonumber(period), start = tonumber(start),
    }
end

-- Everything but the plain case below. It is only made when it is needed: making it takes longer than most calls.
local function make_general()
    -- Exact for whole numbers up to 2^53, which floor(a / b) is not.
    local function over(a, b) return (a - fmod(a, b)) / b end
    local function over_up(a, b)
        local rest = fmod(a, b)
        if rest == 0 then return a / b end
        return (a - rest) / b + 1
    end

    local function window_start(limit, at) return at - (at - limit.start) % limit.period end

    local function parts(limit, tokens)
        if limit.kind == 't' then return tokens * limit.period end
        return tokens
    end

    local function fresh(limit)
        local at = now
        if limit.kind ~= 't' then at = window_start(limit, now) end
        return { missing = 0, before = 0, at = at }
    end

    local function refresh(limit, state)
        if now < state.at then
            if now < state.at - 1000 then state.at = fresh(limit).at end
            return
        end
        if limit.kind == 't' then
            local gone = now - state.at
            if gone > 9007199254740992 / limit.rate or gone * limit.rate >= state.missing then
                state.missing = 0
            else
                state.missing = state.missing - gone * limit.rate
            end
            state.at = now
            return
        end
        local began = window_start(limit, now)
        local windows = over_up(max(0, began - state.at), limit.period)
        if limit.kind == 'f' then
            state.missing = max(0, state.missing - windows * limit.rate)
            state.at = max(began, state.at)
        elseif windows > 0 then
            state.before = windows == 1 and state.missing or 0
            state.missing = 0
            state.at = began
        end
    end

    -- What counts as used in a sliding window.
    local function used(limit, state)
        local left = max(0, limit.period - (now - state.at))
        return state.missing + over_up(state.before * left, limit.period)
    end

    local function value(limit, state)
        if limit.kind == 't' then
            local left = limit.capacity * limit.period - state.missing
            if left < 0 then return -over_up(-left, limit.period) end
            return over(left, limit.period)
        elseif limit.kind == 'f' then
            return limit.capacity - state.missing
        end
        return limit.capacity - used(limit, state)
    end

    local function wait_window(limit, state, tokens)
        return max(0, state.at + over_up(tokens, limit.rate) * limit.period - now)
    end

    local function fits_at(before, room, period)
        if before <= room then return 0 end
        return period - over(room * period, before)
    end

    local function wait_sliding(limit, state, cost)
        local room = limit.capacity - cost - state.missing
        local at
        if room >= 0 then
            at = state.at + fits_at(state.before, room, limit.period)
        else
            at = state.at + limit.period + fits_at(state.missing, limit.capacity - cost, limit.period)
        end
        return max(0, at - now)
    end

    -- How long until so much is there: 0 for now, -1 for never.
    local function wait(limit, state, cost)
        if cost > limit.capacity then return -1 end
        if limit.kind == 's' then
            if used(limit, state) + cost <= limit.capacity then return 0 end
            return wait_sliding(limit, state, cost)
        end
        local owed = state.missing + parts(limit, cost) - parts(limit, limit.capacity)
        if owed <= 0 then return 0 end
        if limit.kind == 't' then return over_up(owed, limit.rate) end
        return wait_window(limit, state, owed)
    end

    local function charge(limit, state, amount)
        state.missing = state.missing + parts(limit, amount)
    end

    local function penalize(limit, state, amount)
        local most = 2 * parts(limit, limit.capacity)
        state.missing = min(state.missing + parts(limit, amount), max(most, state.missing))
    end

    local function refund(limit, state, amount)
        local back = parts(limit, amount)
        if limit.kind == 's' then state.before = max(0, state.before - max(0, back - state.missing)) end
        state.missing = max(0, state.missing - back)
    end

    -- What was used under another limit stays used under this one.
    local function convert(limit, old, state)
        refresh(old, state)
        if old.kind == 't' and limit.kind == 't' then
            -- Whole tokens and the rest apart: their product would be more than a double holds.
            local whole = over(state.missing, old.period)
            local rest = state.missing - whole * old.period
            local missing = whole * limit.period + over_up(rest * limit.period, old.period)
            state.missing = min(missing, 2 * parts(limit, limit.capacity))
            return state
        end
        local spent
        if old.kind == 't' then spent = over_up(state.missing, old.period)
        elseif old.kind == 'f' then spent = state.missing
        else spent = used(old, state) end
        local new = fresh(limit)
        penalize(limit, new, spent)
        return new
    end

    local function load(key, limit)
        local row = redis.pcall('HMGET', key, 'tokens', 'last_ms', 'carry', 'law')
        if row.err then return nil end
        local account = { limit = limit, blocked = 0 }
        if not row[4] then
            account.state = fresh(limit)
            return account
        end
        local blocked, law = string.match(row[4], '^b(%d+)/(.+)$')
        account.blocked, law = tonumber(blocked or '0'), law or row[4]
        local old = limit
        if law ~= limit.law then old = read_law(law) end
        local tokens, carry = tonumber(row[1]), tonumber(row[3])
        local state = { at = tonumber(row[2]), before = 0 }
        if old.kind == 't' then
            state.missing = (old.capacity - tokens) * old.period - carry
        else
            state.missing = old.capacity - tokens
            state.before = carry
        end
        account.limit, account.state = old, state
        return account
    end

    local function save(key, account)
        local limit, state = account.limit, account.state
        local blocked = max(0, account.blocked - now)
        if state.missing == 0 and state.before == 0 and blocked == 0 then
            call('DEL', key)
            return
        end
        local tokens, carry = limit.capacity - state.missing, state.before
        if limit.kind == 't' then
            local left = limit.capacity * limit.period - state.missing
            tokens = left < 0 and -over_up(-left, limit.period) or over(left, limit.period)
            carry = left - tokens * limit.period
        end
        local law = limit.law
        if blocked > 0 then law = string.format('b%.0f/%s', account.blocked, law) end
        call('HSET', key, 'tokens', tokens, 'last_ms', state.at, 'carry', carry, 'law', law)
        call('PEXPIRE', key, max(account.ttl, blocked))
    end

    local accounts = {}

    local function act(key, limit, verb, amount)
        local account = accounts[key]
        if not account then
            account = load(key, limit)
            if not account then return -2, 0 end
            accounts[key] = account
        end
        if account.limit.law ~= limit.law then
            account.state = convert(limit, account.limit, account.state)
            account.limit = limit
            account.changed = account.changed or verb ~= 'p'
        end
        account.ttl = limit.ttl
        local state = account.state
        refresh(limit, state)
        local cost, taken = 1, false
        if verb == 'c' or verb == 'p' then cost = amount end
        if verb == 'c' then
            account.used = true
            if account.blocked <= now and wait(limit, state, cost) == 0 then
                charge(limit, state, cost)
                taken = true
            end
        elseif verb == 'r' then refund(limit, state, amount)
        elseif verb == 'n' then penalize(limit, state, amount)
        elseif verb == 'b' then account.blocked = now + amount
        elseif verb == 'x' then
            state = fresh(limit)
            account.state, account.blocked = state, 0
        end
        account.changed = account.changed or taken or (verb ~= 'c' and verb ~= 'p')
        local after = 0
        if not taken then
            after = wait(limit, state, cost)
            if after >= 0 then after = max(after, account.blocked - now, 0) end
        end
        return after, max(0, value(limit, state))
    end

    local function finish()
        for key, account in pairs(accounts) do
            if account.changed then
                save(key, account)
            elseif account.used then
                call('PEXPIRE', key, max(account.ttl, account.blocked - now))
            end
        end
    end

    return act, finish, accounts
end

local limits, at = {}, 2
for number = 1, tonumber(ARGV[1]) do
    local limit = read_law(ARGV[at])
    limit.ttl_text, limit.ttl = ARGV[at + 1], tonumber(ARGV[at + 1])
    limits[number] = limit
    at = at + 2
end

local is_same = #ARGV == at + 2
local limit, verb, amount
local act, finish, accounts
local answers = {}
for number = 1, #KEYS do
    local key = KEYS[number]
    if number == 1 or not is_same then
        limit, verb, amount = limits[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
        at = at + 3
    end
    local after, remaining
    -- What is held of a key until the end is not yet in its hash.
    if verb == 'c' and limit.kind == 't' and not (accounts and accounts[key]) then
        after, remaining =
            plain(key, limit.law, limit.capacity, limit.rate, limit.period, limit.ttl_text, amount)
    end
    if not after then
        if not act then act, finish, accounts = make_general() end
        after, remaining = act(key, limit, verb, amount)
    end
    local first = number * 3
    answers[first - 2] = after == 0 and 1 or 0
    answers[first - 1] = remaining
    answers[first] = after
end
if finish then finish() end
return answers
