# The story of test_clients.py, told with redis-rb. story.rb STEP PORT
require 'json'
require 'redis'

step, port = ARGV
$stdout.sync = true
r = Redis.new(host: '127.0.0.1', port: port.to_i, timeout: 90)

def numbers(entries)
  entries.map { |_, fields| fields['n'].to_i }
end

case step
when 'produce'
  r.xgroup(:create, 's', 'g', '0', mkstream: true)
  r.pipelined { |p| 100.times { |n| p.xadd('s', { 'n' => n, 'pad' => "ü\r\n" }) } }
  replies = r.multi do |t|
    t.xadd('s', { 'n' => 100 })
    t.xadd('s', { 'n' => 101 })
    t.xlen('s')
  end
  puts replies[2].to_json
when 'work'
  ids = r.xreadgroup('g', 'a', 's', '>', count: 40)['s'].map(&:first)
  puts r.xack('s', 'g', *ids[0, 10]).to_json
  r.xreadgroup('g', 'a', 's', '>', count: 5)
  puts 'holding'
  r.xread('never', '$', block: 80_000)
when 'recover'
  seen = []
  start = '0-0'
  loop do
    got = r.xautoclaim('s', 'g', 'b', 0, start, count: 10)
    start = got['next']
    seen += numbers(got['entries'])
    r.xack('s', 'g', *got['entries'].map(&:first)) unless got['entries'].empty?
    break if start == '0-0'
  end
  until (entries = r.xreadgroup('g', 'b', 's', '>', count: 25)['s']).nil?
    seen += numbers(entries)
    r.xack('s', 'g', *entries.map(&:first))
  end
  puts seen.sort.to_json
when 'wait'
  puts numbers(r.xreadgroup('g', 'b', 's', '>', block: 60_000)['s']).to_json
when 'watch'
  other = Redis.new(host: '127.0.0.1', port: port.to_i)
  got = r.watch('s') do
    other.xadd('s', { 'n' => -1 })
    r.multi { |t| t.xlen('s') }
  end
  puts (got.nil? ? 'aborted' : got).to_json
when 'wrong'
  r.set('text', 'x')
  begin
    r.xadd('text', { 'a' => 'b' })
  rescue Redis::CommandError => e
    puts e.message.split.first.to_json
  end
end
