<?php
// The story of test_clients.py, told with phpredis. story.php STEP PORT
[, $step, $port] = $argv;
ini_set('default_socket_timeout', '-1');
$r = new Redis();
$r->connect('127.0.0.1', (int) $port);

function numbers($entries)
{
    return array_map(fn ($fields) => (int) $fields['n'], array_values($entries));
}

function say($what)
{
    fwrite(STDOUT, json_encode($what) . "\n");
}

switch ($step) {
case 'produce':
    $r->xGroup('CREATE', 's', 'g', '0', true);
    $pipe = $r->pipeline();
    for ($n = 0; $n < 100; $n++) {
        $pipe->xAdd('s', '*', ['n' => $n, 'pad' => "ü\r\n"]);
    }
    $pipe->exec();
    say($r->multi()->xAdd('s', '*', ['n' => 100])->xAdd('s', '*', ['n' => 101])->xLen('s')->exec()[2]);
    break;
case 'work':
    $ids = array_keys($r->xReadGroup('g', 'a', ['s' => '>'], 40)['s']);
    say($r->xAck('s', 'g', array_slice($ids, 0, 10)));
    $r->xReadGroup('g', 'a', ['s' => '>'], 5);
    fwrite(STDOUT, "holding\n");
    $r->xRead(['never' => '$'], 1, 80000);
    break;
case 'recover':
    $seen = [];
    $start = '0-0';
    do {
        // This version of the client has no method for it.
        $got = $r->rawCommand('XAUTOCLAIM', 's', 'g', 'b', '0', $start, 'COUNT', '10');
        $start = $got[0];
        foreach ($got[1] as [$id, $fields]) {
            $seen[] = (int) $fields[array_search('n', $fields) + 1];
            $r->xAck('s', 'g', [$id]);
        }
    } while ($start !== '0-0');
    while ($got = $r->xReadGroup('g', 'b', ['s' => '>'], 25)) {
        array_push($seen, ...numbers($got['s']));
        $r->xAck('s', 'g', array_keys($got['s']));
    }
    sort($seen);
    say($seen);
    break;
case 'wait':
    say(numbers($r->xReadGroup('g', 'b', ['s' => '>'], 10, 60000)['s']));
    break;
case 'watch':
    $other = new Redis();
    $other->connect('127.0.0.1', (int) $port);
    $r->watch('s');
    $other->xAdd('s', '*', ['n' => -1]);
    say($r->multi()->xLen('s')->exec() === false ? 'aborted' : 'carried out');
    break;
case 'wrong':
    $r->set('text', 'x');
    $r->xAdd('text', '*', ['a' => 'b']);
    say(explode(' ', $r->getLastError())[0]);
    break;
}
