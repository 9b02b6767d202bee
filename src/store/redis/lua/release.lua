-- RELEASE: to the reserved consumer, so that anybody may have it. ARGV: 6 and 7 the lowest and the
-- highest ID, 8 "1" to release all the rest too, then for each ID, deliveries, "1" to give the attempt
-- back, else the idle time to record. Answers: now, results, how many of the rest, "there is more".
--
-- The row of an entry that is gone from the stream cannot be moved: XCLAIM drops it. Asked for by ID it
-- is taken away and the caller told, who reports the loss; of the rest it stays where it is, and whoever
-- sweeps after the caller reports it.
local error = absent() or fence()
if error then
    return error
end
local ids, answers = {}, {}
for i = 9, #ARGV, 4 do
    ids[#ids + 1] = ARGV[i]
end
local found = #ids > 0 and held(ids, 6) or {}
for i, id in ipairs(ids) do
    local at = 5 + 4 * i
    local count = tonumber(ARGV[at + 1])
    if not found[id] or found[id][1] ~= count then
        answers[i] = LOST
    elseif not exists(id) then
        call('XACK', stream, group, id)
        answers[i] = TRIMMED
    elseif ARGV[at + 2] == '1' then
        local less_one = count > 0 and count < COUNT_MAX and num(count - 1) or ARGV[at + 1]
        call('XCLAIM', stream, group, RELEASED, 0, id, 'TIME', 1, 'RETRYCOUNT', less_one, 'JUSTID')
        answers[i] = DONE
    else
        local delivered = num(math.max(1, now - tonumber(ARGV[at + 3])))
        call('XCLAIM', stream, group, RELEASED, 0, id, 'TIME', delivered, 'RETRYCOUNT', ARGV[at + 1],
            'JUSTID')
        answers[i] = DONE
    end
end

local rested, more = 0, 0
if ARGV[8] == '1' then
    local rows = call('XPENDING', stream, group, '-', '+', 1001, me)
    if #rows > 8 then
        learn_bounds()
    end
    for i = 1, math.min(1000, #rows) do
        local id, count = rows[i][1], rows[i][4]
        if exists(id) then
            count = (count < 0 or count >= COUNT_MAX) and '9223372036854775807' or num(count)
            call('XCLAIM', stream, group, RELEASED, 0, id, 'TIME', 1, 'RETRYCOUNT', count, 'JUSTID')
            rested = rested + 1
        end
    end
    more = #rows > 1000 and rested > 0 and 1 or 0
end
return {now, answers, rested, more}
