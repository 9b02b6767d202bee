-- Walks one owner's pending rows; claims, parks and reaps what is overdue, judged in this same step.
-- KEYS: 3 the dead-letter stream, 4 the attempts. ARGV: 6 owner, 7 "1" for unowned rows, 8 from, 9 rows at most,
-- 10 claims at most, 11 "1" last attempts too, 12 "1" park and reap, 13 min-idle, 14 max deliveries,
-- 15 and 16 the backoff's base and cap, 17 what else to do instead of claiming: "requeue", "hand-over",
-- "park" or "", 18 the consumer to hand over to, 19 "1" to requeue whatever other groups there are.
-- Answers: now, state, beat, claimed (ID, deliveries, idle, ID, ...), parked, reaped, failed parks, the first one's error, rows, due,
-- last ones among them, first due, not due, wait, next, rows too large to move here, the owner's row,
-- moved (ID, copy, deliveries, idle, ID, ...), "1" if other groups forbade it.
local error = absent()
if error then
    return error
end
local result, why = beat(false)
if not result then
    return why
end
if result == OCCUPIED then
    return replaced()
end
local owner, unowned = ARGV[6], ARGV[7] == '1'
local rows_max, claims_max = tonumber(ARGV[9]), tonumber(ARGV[10])
local last_too, settle = ARGV[11] == '1', ARGV[12] == '1'
local min_idle, deliveries_max = tonumber(ARGV[13]), tonumber(ARGV[14])
local base, cap = tonumber(ARGV[15]), tonumber(ARGV[16])
local action, heir, forbidden = ARGV[17], ARGV[18], false
-- No step is to hold the server up for 5 ms, except for a worker's claim: entries copied in one, and their
-- bytes, beside the last of them; entries handed over; and time, looked at now and then, whatever it went by
-- with (on servers whose clock stands still in a script, the others have to do).
local STEP_MAX, STEP_BYTES, HAND_OVER_MAX, STEP_US = 100, 262144, 250, 2000
if me == '' and action == '' then
    claims_max = 0
end
claims_max = math.min(claims_max, action == 'hand-over' and HAND_OVER_MAX or 4000) -- IDs in one command

-- 16 bits from the ID, so that all workers agree on the jitter.
local function hash(id)
    local h = 0
    for i = 1, #id do
        h = (h * 31 + string.byte(id, i)) % 65536
    end
    return h
end

-- The backoff after so many deliveries, without its jitter, which is less than a tenth of it.
local waits = {}
local function plain_wait(deliveries)
    local wait = base
    if deliveries == 0 or base <= 0 then
        wait = 0
    elseif deliveries < 0 or deliveries - 1 >= 62 then
        wait = math.max(0, cap)
    else
        wait = math.max(0, math.min(cap, base * 2 ^ (deliveries - 1)))
    end
    waits[deliveries] = wait
    return wait
end

local function jitter(wait, id)
    local whole, rest, h = math.floor(wait / 655360), wait % 655360, hash(id)
    return whole * h + math.floor(rest * h / 655360)
end

local row = not unowned and row_read(call('HGET', tab, 'w:' .. owner)) or nil
local state = unowned and NOBODY or state_of(owner, row)
local quiet = row and silence(row) or 0
if state == DEAD then
    mark_dead(owner, row)
end

-- What was found. `claimed` is flat: ID, deliveries, idle of each.
local claimed, claimed_count = {}, 0
local parked, reaped, large = {}, {}, {}
local moved, copied, bytes = {}, 0, 0
local failed, failure, rows, due, due_last, due_first = 0, '', 0, 0, 0, ''
local not_due, wait_least, next_row = 0, -1, ''

-- How long the row still has to wait; 0 = it is overdue. The jitter, which takes longer than all the rest,
-- is asked for only where it decides: a wait that is not the shortest may come out too short.
local function wait_of(id, idle, deliveries)
    if idle < 0 and (state == NOBODY or state == FREED) then
        return 0
    end
    if state == DEAD and idle < quiet then
        idle = quiet
    end
    local wait = waits[deliveries] or plain_wait(deliveries)
    local need = state == FOREIGN and wait < min_idle and min_idle or wait
    if idle >= need and idle >= wait + wait / 10 then
        return 0
    end
    if wait_least >= 0 and need - idle >= wait_least then
        return need - idle
    end
    return math.max(0, math.max(need, wait + jitter(wait, id)) - idle)
end

-- What an entry had before it was requeued; nil where there are none at all.
local carries = call('EXISTS', KEYS[4]) == 1
local function carried(id)
    local reply = try('HGET', KEYS[4], id)
    return not is_error(reply) and tonumber(reply or 0) or 0
end

local function refuse(why)
    failed = failed + 1
    failure = failed == 1 and why or failure
end

local function took_long()
    local t = call('TIME')
    return (t[1] - time[1]) * 1000000 + t[2] - time[2] >= STEP_US
end

-- The entry is to be copied: false if the step is large enough, and the walk stops in front of it.
local function room_for_copy(fields)
    if copied >= STEP_MAX or bytes >= STEP_BYTES or ((copied % 10 == 9 or bytes >= 65536) and took_long()) then
        return false
    end
    copied = copied + 1
    for i = 1, #fields do
        bytes = bytes + #fields[i]
    end
    return true
end

local function acked(id)
    call('XACK', stream, group, id)
    if carries then
        try('HDEL', KEYS[4], id)
    end
end

local function park(id, idle, deliveries, fields, reason, total)
    local facts = {id = id, owner = owner, deliveries = total, reason = reason, error = '',
        idle = math.max(idle, 0)}
    if #fields > FIELDS_MAX then
        large[#large + 1] = {id, num(deliveries), num(now - facts.idle), fields, reason, num(total)}
        return
    end
    local refused = bury(KEYS[3], fields, facts)
    if refused then
        refuse(refused)
    else
        acked(id)
        parked[#parked + 1] = {id, num(total)}
    end
end

-- A copy at the stream's end and the ack. What it has had goes on beside it.
local function requeue(id, idle, deliveries, fields, total)
    if #fields > FIELDS_MAX then
        large[#large + 1] = {id, num(deliveries), num(now - math.max(idle, 0)), fields, '', num(total)}
        return
    end
    local add = {'XADD', stream, '*'}
    for i = 1, #fields do
        add[i + 3] = fields[i]
    end
    local copy = try(unpack(add))
    if is_error(copy) then
        refuse(copy.err)
        return
    end
    acked(id)
    try('HSET', KEYS[4], copy, num(total))
    local n = #moved
    moved[n + 1], moved[n + 2], moved[n + 3], moved[n + 4] = id, copy, num(total), idle
end

local function reap(id, total)
    acked(id)
    reaped[#reaped + 1] = {id, num(total)}
end

local function left_due(id, is_last)
    due = due + 1
    due_first = due_first == '' and id or due_first
    due_last = due_last + (is_last and 1 or 0)
end

-- From so many deliveries on the next one is the last, and not to be claimed here.
local last_from = deliveries_max
if action == '' and (state == DEAD or state == FOREIGN) and not last_too then
    last_from = deliveries_max - 1
end

-- One XCLAIM for each count, as with JUSTID the count has to be given. Totals only where they are not the count.
local by_count, sizes, totals = {}, {}, {}
local claimer = action == '' and me or heir
local function put_claim(id, idle, deliveries, total)
    local command, size = by_count[deliveries], sizes[deliveries]
    if not command then
        command, size = {'XCLAIM', stream, group, claimer, 0}, 5
        by_count[deliveries] = command
    end
    command[size + 1], sizes[deliveries] = id, size + 1
    local n = claimed_count * 3
    claimed[n + 1], claimed[n + 2], claimed[n + 3] = id, deliveries + 1, idle
    claimed_count = claimed_count + 1
    if total ~= deliveries then
        totals[id] = total
    end
end

-- An overdue row that may be delivered once more. False: the walk stops in front of it.
local function claim(id, idle, deliveries, total)
    local full, is_last = claimed_count >= claims_max, total >= last_from
    if not (full or is_last or forbidden) then
        put_claim(id, idle, deliveries, total)
        return true
    end
    if full and action ~= '' and not forbidden and claims_max > 0 then
        return false
    end
    left_due(id, is_last)
    return is_last or forbidden or claims_max == 0
end

-- The same for a row that is to be requeued or parked.
local function move(id, idle, deliveries, total)
    local entry = call('XRANGE', stream, id, id, 'COUNT', 1)[1]
    if not entry then
        if settle then
            reap(id, total)
        end
        return true
    end
    if forbidden or claims_max == 0 then
        left_due(id, false)
        return true
    end
    if copied >= claims_max or not room_for_copy(entry[2]) then
        return false
    end
    if action == 'park' then
        park(id, idle, deliveries, entry[2], 'abandoned', total)
    else
        requeue(id, idle, deliveries, entry[2], total)
    end
    return true
end

local function step(id, idle, deliveries)
    local wait, total = wait_of(id, idle, deliveries), deliveries
    if wait == 0 and carries and deliveries >= 0 then
        total = deliveries + carried(id)
        wait = wait_of(id, idle, total)
    end
    if wait > 0 then
        not_due = not_due + 1
        wait_least = wait_least < 0 and wait or math.min(wait, wait_least)
        return true
    end
    local exhausted = total < 0 or total >= deliveries_max
    if exhausted then
        local entry = settle and call('XRANGE', stream, id, id, 'COUNT', 1)[1]
        if entry then
            if not room_for_copy(entry[2]) then
                return false
            end
            park(id, idle, deliveries, entry[2], 'max-deliveries', total)
        elseif settle then
            reap(id, total)
        end
        return true
    end
    if action == 'requeue' or action == 'park' then
        return move(id, idle, deliveries, total)
    end
    -- Claiming itself tells of an entry that is gone, but reaps it: only where that is wished.
    if settle and claimed_count < claims_max and not forbidden or exists(id) then
        return claim(id, idle, deliveries, total)
    end
    if settle then
        reap(id, total)
    end
    return true
end

local function clock()
    local t = call('TIME')
    return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- Rows, and how much later than `now` their idle times were taken: the command looks at the clock once, as
-- it begins. Few rows are asked for again if it ticked just then, so that what is answered fits together to
-- the millisecond; many, which take longer than that, may be a millisecond out.
local function list(from, limit)
    local rows_found, late
    for _ = 1, 3 do
        local before = clock()
        if unowned then
            rows_found = call('XPENDING', stream, group, from, '+', limit)
        else
            rows_found = call('XPENDING', stream, group, from, '+', limit, owner)
        end
        late = before - now
        if #rows_found > 100 or clock() == before then
            break
        end
    end
    return rows_found, late
end

-- About as many rows at a time as can be claimed, and one row more than may be examined, to know
-- whether that was the end.
local function walk()
    local from, claiming = ARGV[8], action == '' and claims_max > 0
    local chunk = claims_max > 0 and (action == '' and claims_max or STEP_MAX) + 1 or rows_max + 1
    while from do
        local limit = math.min(chunk, rows_max - rows + 1)
        local all, late = list(from, limit)
        from = #all == limit and next_id(all[limit][1])
        if #all > 8 and not first_id and not (settle and claims_max > 0 and not forbidden) then
            learn_bounds() -- each of them may have to be looked for
        end
        for _, pending in ipairs(all) do
            local id, idle = pending[1], pending[3]
            local other = unowned and not (pending[2] == '' and idle < 0)
            idle = idle < 0 and idle or math.max(0, idle - late)
            local over = rows == rows_max or (not claiming and rows % 100 == 99 and took_long())
            if over or not (other or step(id, idle, pending[4])) then
                next_row = id
                return
            end
            rows = rows + 1
        end
    end
end
if action == 'requeue' then
    forbidden = ARGV[19] ~= '1' and #call('XINFO', 'GROUPS', stream) > 1
elseif action == 'hand-over' then
    forbidden = true
    for _, consumer in ipairs(call('XINFO', 'CONSUMERS', stream, group)) do
        forbidden = forbidden and consumer[2] ~= heir
    end
end
if state ~= ME and state ~= LIVE and state ~= UNKNOWN then
    walk()
end

-- Without the entries, which would go through here word by word: who asked fetches them.
local there, there_count = {}, 0
for count, command in pairs(by_count) do
    local n = sizes[count]
    command[n + 1], command[n + 2], command[n + 3] = 'RETRYCOUNT', num(count + 1), 'JUSTID'
    local reply = call(unpack(command, 1, n + 3))
    there[#there + 1] = reply
    there_count = there_count + #reply
end
if there_count < claimed_count then -- some are gone from the stream
    local found, kept, n = {}, {}, 0
    for _, reply in ipairs(there) do
        for _, id in ipairs(reply) do
            found[id] = true
        end
    end
    for i = 1, claimed_count * 3, 3 do
        local id, deliveries = claimed[i], claimed[i + 1]
        if found[id] then
            kept[n + 1], kept[n + 2], kept[n + 3] = id, deliveries, claimed[i + 2]
            n = n + 3
        else
            reaped[#reaped + 1] = {id, num(totals[id] or deliveries - 1)}
        end
    end
    claimed = kept
end
if action ~= '' then -- handed over
    for i = 1, #claimed, 3 do
        local id, n = claimed[i], #moved
        moved[n + 1], moved[n + 2], moved[n + 3] = id, id, num(totals[id] or claimed[i + 1] - 1)
        moved[n + 4] = claimed[i + 2]
    end
    claimed = {}
end
local keep = {'HSET', tab, 'cursor', (next_row == '' and '0-0' or next_row) .. ' ' .. owner}
if due > 0 then
    keep[5], keep[6] = 'left', num(now)
end
call(unpack(keep))
return {now, state, result, claimed, parked, reaped, failed, failure, rows, due, due_last, due_first,
    not_due, wait_least, next_row, large, row and row_text(row) or '', moved,
    action == 'requeue' and forbidden and due > 0 and 1 or 0}
