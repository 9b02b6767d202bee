-- REPLAY: each record goes in the step that puts its entry back. KEYS: 3 the dead-letter stream, 4 the
-- audit stream, 5 the attempts. ARGV: 6 mode: "add", "back", "drop", or "settle", which stands behind the
-- XADD of one large entry in a MULTI/EXEC; 7 "1" = refuse where the stream has another group; 8 the audit stream's
-- length, 0 = no audit; 9 how many words of its line follow, then these; then for each record: ID,
-- number of fields, the original's ID (for "settle" the stream's last ID before the XADD), number of
-- runs, and for each run the first field and how many.
-- Answers: now, then for each {result}, {DONE, ID of the copy}, {FAILED, why}, or {6, fields, last ID of
-- the stream} = too large for a script; then it ends.
local MISSING, GONE, STANDS, REFUSED, LARGE = 2, 3, 4, 5, 6
local mode, dead, audit, length = ARGV[6], KEYS[3], KEYS[4], tonumber(ARGV[8])
local at = 10 + tonumber(ARGV[9])

local function not_a_stream(key)
    local kind = call('TYPE', key).ok
    return kind ~= 'none' and kind ~= 'stream'
end
local function newest(key)
    return call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
end

-- ---- what is refused as a whole ----

local delivered
local function refusal()
    if mode ~= 'drop' and mode ~= 'settle' and not_a_stream(stream) or not_a_stream(dead) or
        (length > 0 and not_a_stream(audit)) then
        return redis.error_reply('WRONGTYPE the stream, the dead-letter or the audit key is no stream')
    end
    if mode == 'back' and absent() then
        return absent()
    end
    local groups = mode ~= 'drop' and try('XINFO', 'GROUPS', stream) or {}
    for _, reply in ipairs(is_error(groups) and {} or groups) do
        local info = {}
        for i = 1, #reply, 2 do
            info[reply[i]] = reply[i + 1]
        end
        if info['name'] == group then
            delivered = info['last-delivered-id']
        elseif mode == 'add' and ARGV[7] == '1' then
            return redis.error_reply("OTHERS the group '" .. info['name'] ..
                "' would see the copies as new work")
        end
    end
end
local refused = refusal()
if refused then
    return refused
end

-- ---- one record ----

local function next_item()
    local item = {id = ARGV[at], count = tonumber(ARGV[at + 1]), original = ARGV[at + 2], runs = {}}
    local runs = tonumber(ARGV[at + 3])
    at = at + 4
    for i = 1, runs do
        item.runs[i] = {tonumber(ARGV[at]), tonumber(ARGV[at + 1])}
        at = at + 2
    end
    return item
end

-- An ID as servers write it: "007" is 7-0.
local function plain_id(text)
    local ms, seq = text:match('^0*(%d+)%-0*(%d+)$')
    ms = ms or text:match('^0*(%d+)$')
    return ms and ms .. '-' .. (seq or '0')
end

-- Does the record name the original that is meant?
local function names(record, original)
    for i = 1, #record, 2 do
        if record[i] == 'original_id' and plain_id(record[i + 1]) == original then
            return true
        end
    end
    return false
end

-- Its own fields, or nil if it is not the record that was looked at.
local function own_fields(item)
    local record = call('XRANGE', dead, item.id, item.id, 'COUNT', 1)[1]
    if not record or #record[2] ~= item.count * 2 or
        (mode == 'back' and not names(record[2], item.original)) then
        return nil
    end
    local all, own = record[2], {}
    for _, run in ipairs(item.runs) do
        for i = run[1] * 2 + 1, (run[1] + run[2]) * 2 do
            own[#own + 1] = all[i]
        end
    end
    return own
end

local function add(item, fields)
    if #fields > FIELDS_MAX then
        local last, info = '0-0', try('XINFO', 'STREAM', stream)
        for i = 1, is_error(info) and 0 or #info, 2 do
            last = info[i] == 'last-generated-id' and info[i + 1] or last
        end
        return {LARGE, fields, last}
    end
    if #fields == 0 then
        return {REFUSED, 'ERR the record has no fields of an entry'}
    end
    local copy = try('XADD', stream, '*', unpack(fields))
    if is_error(copy) then
        return {REFUSED, copy.err}
    end
    call('XDEL', dead, item.id)
    return {DONE, copy}
end

local function back(item)
    local id = item.original
    if not call('XRANGE', stream, id, id, 'COUNT', 1)[1] then
        return {GONE}
    end
    if less(delivered, id) or call('XPENDING', stream, group, id, id, 1)[1] then
        return {STANDS}
    end
    call('XCLAIM', stream, group, RELEASED, 0, id, 'TIME', 1, 'RETRYCOUNT', 0, 'FORCE', 'JUSTID')
    call('HDEL', KEYS[5], id) -- what it carried from a life before
    call('XDEL', dead, item.id)
    return {DONE}
end

-- The copy of a large entry stands in the stream, or was refused.
local function settle(item, fields)
    local copy = not not_a_stream(stream) and newest(stream)
    if not copy or not less(item.original, copy[1]) or (fields and #fields ~= #copy[2]) then
        return {REFUSED, 'ERR the copy was not added'}
    end
    if not fields then
        call('XDEL', stream, copy[1])
        return {MISSING}
    end
    call('XDEL', dead, item.id)
    return {DONE, copy[1]}
end

local function replay(item)
    local fields = own_fields(item)
    if mode == 'settle' then
        return settle(item, fields)
    elseif not fields then
        return {MISSING}
    elseif mode == 'add' then
        return add(item, fields)
    elseif mode == 'back' then
        return back(item)
    end
    call('XDEL', dead, item.id)
    return {DONE}
end

local answers, gone = {}, {}
while at <= #ARGV do
    local item = next_item()
    local answer = replay(item)
    answers[#answers + 1] = answer
    if answer[1] == DONE then
        gone[#gone + 1] = item.id
    elseif answer[1] == LARGE then
        break
    end
end
if length > 0 and #gone > 0 then
    local line = {'XADD', audit, 'MAXLEN', '~', length, '*'}
    for i = 10, 9 + tonumber(ARGV[9]) do
        line[#line + 1] = ARGV[i]
    end
    for _, word in ipairs({'count', #gone, 'records', table.concat(gone, ' ')}) do
        line[#line + 1] = word
    end
    try(unpack(line)) -- a server out of memory still drops; all that can be refused was looked at
end
return {now, answers}
