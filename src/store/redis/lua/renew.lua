-- RENEW: idle back to 0, nothing else. ARGV: 6 and 7 the lowest and the highest ID, then ID and
-- deliveries of each. Answers: now, then a result for each.
--
-- An entry that is gone from the stream is left alone: XCLAIM would take its row away, and nobody
-- would report the loss if its holder died.
local error = absent() or fence()
if error then
    return error
end
local ids, answers, renew = {}, {}, {'XCLAIM', stream, group, me, 0}
for i = 8, #ARGV, 2 do
    ids[#ids + 1] = ARGV[i]
end
local found = held(ids, 6)
if #ids > 2 then
    learn_bounds()
end
for i, id in ipairs(ids) do
    local count = ARGV[7 + 2 * i]
    if not found[id] or found[id][1] ~= tonumber(count) then
        answers[i] = LOST
    elseif not exists(id) then
        answers[i] = TRIMMED
    else
        answers[i] = DONE
        if old then
            -- Before 6.2 XCLAIM counts a delivery even with JUSTID.
            call('XCLAIM', stream, group, me, 0, id, 'RETRYCOUNT', count, 'JUSTID')
        else
            renew[#renew + 1] = id
        end
    end
end
if #renew > 5 then
    renew[#renew + 1] = 'JUSTID'
    call(unpack(renew))
end
return {now, answers}
