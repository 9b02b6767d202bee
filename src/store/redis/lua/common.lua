-- Stands in front of every script: the caller, the store's clock, the workers table and the fences.
--
-- KEYS  stream, the group's table, (dead-letter stream)
-- ARGV  group, consumer, token, dead-after, "1" if the server is older than 6.2, then the script's own
--
-- The table is a hash. `last` and `since` are when any beat was taken last, and since when without a
-- gap; `least` is the smallest dead-after of a row (perhaps of one that is gone: then a gap is seen
-- too soon, which condemns nobody); `stamp`, `cursor`, `floor` and `again` are the sweep's, and `left`: when
-- it left due work behind, or a worker was seen dead. A worker's row is
-- `w:<consumer>` = "<beat> <dead-after> <token>", with " dead" behind it once it was judged so: its
-- own next beat takes that away, and learns of it.
--
-- Numbers are doubles here: times and counts below 2^53 are exact, the largest counts only nearly.
-- They leave as integers where they fit, else as text.
if redis.replicate_commands then
    redis.replicate_commands()
end
local call, try = redis.call, redis.pcall
local stream, tab = KEYS[1], KEYS[2]
local group, me, token = ARGV[1], ARGV[2], ARGV[3]
local dead_after, old = tonumber(ARGV[4]), ARGV[5] == '1'
local RELEASED = 'impel-released'
local TAKEN, REVIVED, OCCUPIED = 0, 1, 2
local NONE, DONE, LOST, TRIMMED, FAILED = 0, 1, 2, 3, 4
local ME, LIVE, DEAD, FOREIGN, FREED, NOBODY, UNKNOWN = 0, 1, 2, 3, 4, 5, 6

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last, since, least = 0, 0, nil

local function num(n)
    return string.format('%.0f', n)
end

local function is_error(reply)
    return type(reply) == 'table' and reply.err ~= nil
end

-- A flat list of names and values as a table.
local function named(reply)
    local info = {}
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    return info
end

-- The error of a missing group or a key of another type, to be returned as it is; else nil.
local function absent()
    local reply = try('XPENDING', stream, group, '0-0', '0-0', 1)
    if is_error(reply) then
        return reply
    end
end

local function less(a, b)
    local am, as = string.match(a, '(%d+)%-(%d+)')
    local bm, bs = string.match(b, '(%d+)%-(%d+)')
    if am == bm then
        am, bm = as, bs
    end
    if #am ~= #bm then
        return #am < #bm
    end
    return am < bm
end

local function increment(digits)
    local head, nines = string.match(digits, '^(%d-)(9*)$')
    if head == '' then
        return '1' .. string.rep('0', #nines)
    end
    local ones = tonumber(string.sub(head, -1)) + 1
    return string.sub(head, 1, -2) .. ones .. string.rep('0', #nines)
end

local SEQ_MAX = '18446744073709551615'
-- The next ID; nil after the last one.
local function next_id(id)
    local ms, seq = string.match(id, '(%d+)%-(%d+)')
    if seq ~= SEQ_MAX then
        return ms .. '-' .. increment(seq)
    end
    if ms ~= SEQ_MAX then
        return increment(ms) .. '-0'
    end
end

local function decrement(digits)
    local head, zeros = string.match(digits, '^(.-)(0*)$')
    local front, ones = string.sub(head, 1, -2), tonumber(string.sub(head, -1)) - 1
    if front == '' and ones == 0 and zeros ~= '' then
        return string.rep('9', #zeros)
    end
    return front .. ones .. string.rep('9', #zeros)
end

-- The ID before; the first one has none and stays.
local function previous_id(id)
    local ms, seq = string.match(id, '(%d+)%-(%d+)')
    if seq ~= '0' then
        return ms .. '-' .. decrement(seq)
    end
    return ms == '0' and id or decrement(ms) .. '-' .. SEQ_MAX
end

-- ---- is an entry still in the stream? ----

-- For many questions: an ID above the largest one that was deleted by name, and not below the first
-- entry, is there, since trimming takes from the front only.
local first_id, deleted_id, last_id
local function learn_bounds()
    local reply, info = call('XINFO', 'STREAM', stream), {}
    for i = 1, #reply, 2 do
        info[reply[i]] = reply[i + 1]
    end
    if info['recorded-first-entry-id'] and info['length'] > 0 then
        first_id, deleted_id = info['recorded-first-entry-id'], info['max-deleted-entry-id']
        last_id = info['last-generated-id']
    end
end

local function exists(id)
    if first_id and less(deleted_id, id) and not less(id, first_id) and not less(last_id, id) then
        return true
    end
    return #call('XRANGE', stream, id, id, 'COUNT', 1) > 0
end

-- ---- the workers table ----

local function row_read(text)
    if not text then
        return nil
    end
    local beat, dead, tok, mark = string.match(text, '^(%d+) (%d+) (%x+)(.*)$')
    if beat then
        return {beat = tonumber(beat), dead = tonumber(dead), token = tok, marked = mark ~= ''}
    end
end

local function row_text(row)
    return num(row.beat) .. ' ' .. num(row.dead) .. ' ' .. row.token .. (row.marked and ' dead' or '')
end

local function stale()
    local gap = math.max(1, math.min(2000, math.floor((least or 1e15) / 2)))
    return last == 0 or now < last or now - last > gap
end

local function silence(row)
    local heard = row.beat > now and since or row.beat
    return math.max(0, now - math.max(heard, since))
end

local function is_dead(row)
    return silence(row) >= row.dead
end

-- The rows of all workers by name; finds the smallest dead-after anew.
local function read_rows()
    local all, rows, names = call('HGETALL', tab), {}, {}
    local smallest
    for i = 1, #all, 2 do
        if string.sub(all[i], 1, 2) == 'w:' then
            local name, row = string.sub(all[i], 3), row_read(all[i + 1])
            if row then
                rows[name] = row
                names[#names + 1] = name
                smallest = math.min(smallest or row.dead, row.dead)
            end
        end
    end
    return rows, names, smallest
end

-- Takes the caller's beat. Returns what became of it, and the row that was found under its name; or
-- nil and an error where the store takes no beats: then nobody is judged.
local function beat(first, smallest)
    local got = call('HMGET', tab, 'last', 'since', 'least', 'w:' .. me)
    local found, result = me ~= '' and row_read(got[4]) or nil, TAKEN
    last, since = tonumber(got[1] or 0), tonumber(got[2] or 0)
    least = smallest or tonumber(got[3] or nil)
    if dead_after > 0 then
        least = math.min(least or dead_after, dead_after)
    end
    if stale() then
        since = now
    end
    last = now
    local set = {'HSET', tab, 'since', num(since), 'last', num(now)}
    if least and least ~= tonumber(got[3] or nil) then
        set[#set + 1], set[#set + 2] = 'least', num(least)
    end
    if me ~= '' then
        local mine = found and found.token == token
        if found and not mine and not is_dead(found) then
            result = OCCUPIED
        else
            result = (first or (mine and not found.marked)) and TAKEN or REVIVED
            set[#set + 1] = 'w:' .. me
            set[#set + 1] = row_text({beat = now, dead = dead_after, token = token})
        end
    end
    local reply = try(unpack(set))
    if is_error(reply) then
        return nil, reply
    end
    return result, found
end

-- For those who do not beat.
local function read_clock()
    local got = call('HMGET', tab, 'last', 'since', 'least')
    last, since, least = tonumber(got[1] or 0), tonumber(got[2] or 0), tonumber(got[3] or nil)
end

local function state_of(name, row)
    if not row then
        return name == RELEASED and FREED or FOREIGN
    end
    if me ~= '' and name == me and row.token == token then
        return ME
    end
    if stale() then
        return UNKNOWN
    end
    return is_dead(row) and DEAD or LIVE
end

local function mark_dead(name, row)
    if not row.marked then
        row.marked = true
        call('HSET', tab, 'w:' .. name, row_text(row), 'left', num(now))
    end
end

local function replaced()
    return redis.error_reply('REPLACED another worker runs under this name')
end

-- The fence on the whole request: nil, or the error to be returned.
local function fence()
    local row = row_read(call('HGET', tab, 'w:' .. me))
    if row and row.token ~= token then
        return replaced()
    end
    if not row or row.marked then
        return redis.error_reply('FENCED this worker is not in the table of the living: it has to beat first')
    end
end

-- Takes a worker's row and its consumer away.
local function remove_worker(name, row)
    call('HDEL', tab, 'w:' .. name)
    call('XGROUP', 'DELCONSUMER', stream, group, name)
    if row and row.dead == tonumber(call('HGET', tab, 'least') or nil) then
        local _, _, smallest = read_rows()
        if smallest then
            call('HSET', tab, 'least', num(smallest))
        else
            call('HDEL', tab, 'least')
        end
    end
end

local function pending_of(name)
    return #call('XPENDING', stream, group, '-', '+', 1, name)
end

-- ---- the caller's own rows ----

-- Which of these IDs the caller holds: ID -> {deliveries, idle}. `at` is where in ARGV the lowest and
-- the highest of them stand. Usually one question answers it.
local function held(ids, at)
    local found, limit = {}, #ids * 4
    local rows = call('XPENDING', stream, group, ARGV[at], ARGV[at + 1], limit, me)
    for _, row in ipairs(rows) do
        found[row[1]] = {row[4], row[3]}
    end
    if #rows == limit then
        for _, id in ipairs(ids) do
            if not found[id] then
                local row = call('XPENDING', stream, group, id, id, 1, me)[1]
                found[id] = row and {row[4], row[3]}
            end
        end
    end
    return found
end

local COUNT_MAX = 9007199254740992
-- Claims for the caller, one delivery more; returns the entries by ID: what is missing is gone from
-- the stream, and its pending row too.
local function take(ids, counts)
    local entries, usual = {}, {'XCLAIM', stream, group, me, 0}
    local function keep(reply)
        for _, entry in ipairs(reply) do
            if type(entry) == 'table' and type(entry[2]) == 'table' then
                entries[entry[1]] = entry[2]
            end
        end
    end
    for i, id in ipairs(ids) do
        if counts[i] >= 0 and counts[i] < COUNT_MAX then
            usual[#usual + 1] = id
        else
            keep(call('XCLAIM', stream, group, me, 0, id, 'RETRYCOUNT', '9223372036854775807'))
        end
    end
    if #usual > 5 then
        -- A reply with a nil in it (before 7.0) has to be walked by index.
        local reply, solid = call(unpack(usual)), {}
        for i = 1, #usual - 5 do
            if reply[i] then
                solid[#solid + 1] = reply[i]
            end
        end
        keep(solid)
    end
    for _, id in ipairs(ids) do
        if not entries[id] then
            call('XACK', stream, group, id)
        end
    end
    return entries
end

-- ---- parking ----

local FIELDS_MAX = 7800
-- Copies an entry to the dead-letter stream. Returns the error that prevented it.
local function bury(dead_letter, fields, row)
    local add = {'XADD', dead_letter, '*'}
    for i = 1, #fields do
        add[i + 3] = fields[i]
    end
    local facts = {
        'original_id', row.id, 'original_stream', stream, 'original_group', group,
        'consumer', row.owner, 'deliveries', num(row.deliveries), 'reason', row.reason,
        'error', row.error, 'last_active_ms', num(now - row.idle), 'parked_ms', num(now),
        'impel_fields', '10',
    }
    for i = 1, #facts do
        add[#add + 1] = facts[i]
    end
    local reply = try(unpack(add))
    if is_error(reply) then
        return reply.err
    end
end
