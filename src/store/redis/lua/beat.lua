-- A worker's sign of life. ARGV: 6 "1" for its first in the group.
-- Answers: now, what became of it, ms until the other one would be dead.
local error = absent()
if error then
    return error
end
local result, found = beat(ARGV[6] == '1')
if not result then
    return found
end
if ARGV[6] == '1' and me ~= '' and result ~= OCCUPIED and not old then
    call('XGROUP', 'CREATECONSUMER', stream, group, me)
end
return {now, result, result == OCCUPIED and found.dead - silence(found) or 0}
