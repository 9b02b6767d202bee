-- Who holds how much, and who is alive. ARGV: 6 "1" to beat, 7 "1" to take the stamp, 8 its interval,
-- 9 "1" if a handler is free: then a young stamp does not stand in the way while work is left.
-- KEYS: 3 the attempts. Answers: now, beat, stamped, cursor, pending, undelivered, then for each owner
-- {name, pending, since it was seen, state} and, if it is in the table, beat age, dead-after, token.
-- There may be a hundred thousand of them: nothing is asked for each, and no word said twice.
local rows, names, smallest = read_rows()

-- A stream that is gone leaves nothing behind, unless a worker is alive that will make it again. Who may
-- not delete leaves it.
local function forget_stream()
    if call('EXISTS', stream) == 1 or call('EXISTS', KEYS[3], tab) == 0 then
        return
    end
    for _, row in pairs(rows) do
        if now - row.beat < row.dead then
            return
        end
    end
    try('UNLINK', KEYS[3], tab)
end

local error = absent()
if error then
    if ARGV[6] == '1' or ARGV[7] == '1' then
        forget_stream()
    end
    return error
end
local result = TAKEN
if ARGV[6] == '1' then
    local why
    result, why = beat(false, smallest)
    if not result then
        return why
    end
    if result == OCCUPIED then
        return replaced()
    end
    if me ~= '' then
        if not rows[me] then
            names[#names + 1] = me
        end
        rows[me] = {beat = now, dead = dead_after, token = token}
    end
    for name, row in pairs(rows) do
        if is_dead(row) then
            mark_dead(name, row)
        end
    end
else
    read_clock()
    least = smallest
end
if ARGV[7] == '1' then
    local got, interval = call('HMGET', tab, 'stamp', 'left'), tonumber(ARGV[8])
    local stamp, left = tonumber(got[1] or 0), tonumber(got[2] or 0)
    local let_in = ARGV[9] == '1' and now >= left and now - left < 2 * interval
    if now >= stamp and now - stamp < interval and not let_in then
        return {now, result, 0}
    end
    call('HSET', tab, 'stamp', num(now))
end

local LARGE, LARGE_AGAIN_MS = 262144, 60000
local function payload(entry)
    local size = 0
    for _, text in ipairs(entry and entry[2] or {}) do
        size = size + #text
    end
    return size
end

-- How far the stream has come: its last ID and how many were ever added. The only command that tells
-- brings the first and the last entry along; where these are large it is asked once a minute only.
local function progress(known)
    local again = tonumber(call('HGET', tab, 'again') or 0)
    if known and now < again and again - now <= LARGE_AGAIN_MS then
        return known
    end
    local reply, info = call('XINFO', 'STREAM', stream), {}
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    if payload(info['first-entry']) + payload(info['last-entry']) > LARGE then
        call('HSET', tab, 'again', num(now + LARGE_AGAIN_MS))
    end
    return info['last-generated-id'] .. ' ' .. num(info['entries-added'] or 0)
end

-- Where the group would have to begin again if it were lost, as a last delivered ID: all up to there was
-- acknowledged. With it, how far the stream had come.
local function keep_floor(delivered)
    local first = call('XPENDING', stream, group, '-', '+', 1)[1]
    local floor = first and not less(delivered, first[1]) and previous_id(first[1]) or delivered
    local known = string.match(call('HGET', tab, 'floor') or '', '^%S+ (%S+ %d+)$')
    call('HSET', tab, 'floor', floor .. ' ' .. progress(known))
end

local owners, seen = {}, {}
local function owner(name, pending, seen_age)
    local row = rows[name]
    if row then
        seen[name] = true
        owners[#owners + 1] = {name, pending, seen_age, state_of(name, row), now - row.beat, row.dead, row.token}
    else
        owners[#owners + 1] = {name, pending, seen_age, state_of(name)}
    end
end
for _, consumer in ipairs(call('XINFO', 'CONSUMERS', stream, group)) do
    owner(consumer[2], consumer[4], consumer[6])
end
for _, name in ipairs(names) do
    if not seen[name] then
        owner(name, 0, -1)
    end
end

-- Who took the stamp sweeps up what requeued entries carry: a part of it at a time, those that were
-- delivered and are not pending any more.
local function forget_attempts(delivered)
    local reply = try('HSCAN', KEYS[3], call('HGET', tab, 'carried') or '0', 'COUNT', 500)
    if is_error(reply) then
        return
    end
    local done = {'HDEL', KEYS[3]}
    for i = 1, math.min(#reply[2], 4000), 2 do
        local id = reply[2][i]
        if not less(delivered, id) and #call('XPENDING', stream, group, id, id, 1) == 0 then
            done[#done + 1] = id
        end
    end
    if #done > 2 then
        call(unpack(done))
    end
    call('HSET', tab, 'carried', reply[1])
end

local total, undelivered = 0, 0
for _, reply in ipairs(call('XINFO', 'GROUPS', stream)) do
    local info = {}
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    if info['name'] == group then
        local after = next_id(info['last-delivered-id'])
        total = info['pending']
        if ARGV[7] == '1' then
            keep_floor(info['last-delivered-id'])
        end
        undelivered = after and #call('XRANGE', stream, after, '+', 'COUNT', 1) or 0
        if ARGV[7] == '1' and call('EXISTS', KEYS[3]) == 1 then
            forget_attempts(info['last-delivered-id'])
        end
    end
end
return {now, result, 1, call('HGET', tab, 'cursor') or '', total, undelivered, owners}
