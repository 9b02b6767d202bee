// The story of test_clients.py, told with ioredis. ioredis.js STEP PORT-OR-SOCKET
const Redis = require('ioredis');

const [, , step, place] = process.argv;
const fieldsOf = (flat) => Object.fromEntries(flat.reduce((pairs, word, i) => {
  if (i % 2 === 0) pairs.push([word, flat[i + 1]]);
  return pairs;
}, []));
const N = (entries) => entries.map(([, flat]) => Number(fieldsOf(flat).n));
const ids = (entries) => entries.map(([id]) => id);
const entriesOf = (reply) => reply[0][1];

const steps = {
  async produce(client) {
    await client.xgroup('CREATE', 's', 'g', '0', 'MKSTREAM');
    const pipe = client.pipeline();
    for (let n = 0; n < 100; n++) pipe.xadd('s', '*', 'n', n, 'pad', 'ü\r\n');
    await pipe.exec();
    const replies = await client.multi().xadd('s', '*', 'n', 100).xadd('s', '*', 'n', 101).xlen('s').exec();
    console.log(JSON.stringify(replies[2][1]));
  },
  async work(client) {
    const entries = entriesOf(await client.xreadgroup('GROUP', 'g', 'a', 'COUNT', 40, 'STREAMS', 's', '>'));
    console.log(JSON.stringify(await client.xack('s', 'g', ...ids(entries).slice(0, 10))));
    await client.xreadgroup('GROUP', 'g', 'a', 'COUNT', 5, 'STREAMS', 's', '>');
    console.log('holding');
    await client.xread('BLOCK', 0, 'STREAMS', 'never', '$');
  },
  async recover(client) {
    const seen = [];
    let start = '0-0';
    do {
      const [next, entries] = await client.xautoclaim('s', 'g', 'b', 0, start, 'COUNT', 10);
      start = next;
      seen.push(...N(entries));
      if (entries.length > 0) await client.xack('s', 'g', ...ids(entries));
    } while (start !== '0-0');
    for (;;) {
      const got = await client.xreadgroup('GROUP', 'g', 'b', 'COUNT', 25, 'STREAMS', 's', '>');
      if (got === null) break;
      seen.push(...N(entriesOf(got)));
      await client.xack('s', 'g', ...ids(entriesOf(got)));
    }
    console.log(JSON.stringify(seen.sort((a, b) => a - b)));
  },
  async wait(client) {
    const got = await client.xreadgroup('GROUP', 'g', 'b', 'BLOCK', 60000, 'STREAMS', 's', '>');
    console.log(JSON.stringify(N(entriesOf(got))));
  },
  async watch(client) {
    const other = client.duplicate();
    await client.watch('s');
    await other.xadd('s', '*', 'n', -1);
    await other.quit();
    if (await client.multi().xlen('s').exec() === null) console.log(JSON.stringify('aborted'));
  },
  async wrong(client) {
    await client.set('text', 'x');
    try {
      await client.xadd('text', '*', 'a', 'b');
    } catch (error) {
      console.log(JSON.stringify(error.message.split(' ')[0]));
    }
  },
  // Reads only what is new and is done with each at once, until it is killed: a worker that stays as it is.
  async serve(client) {
    for (;;) {
      const got = await client.xreadgroup('GROUP', 'g', 'a', 'COUNT', 5, 'BLOCK', 1000, 'STREAMS', 's', '>');
      for (const entry of got === null ? [] : entriesOf(got)) {
        console.log('did', N([entry])[0]);
        await client.xack('s', 'g', entry[0]);
      }
    }
  },
};

(async () => {
  const where = /^\d+$/.test(place) ? { port: Number(place) } : { path: place };
  const client = new Redis({ ...where, retryStrategy: () => null });
  client.on('error', () => {});
  await steps[step](client);
  await client.quit();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
