// The story of test_clients.py, told with node-redis, 4 and 5. story.js STEP PORT-OR-SOCKET
const { createClient } = require('redis');

const [, , step, place] = process.argv;
const where = /^\d+$/.test(place) ? { host: '127.0.0.1', port: Number(place) } : { path: place };
const N = (messages) => messages.map((m) => Number(m.message.n));

const steps = {
  async produce(client) {
    await client.xGroupCreate('s', 'g', '0', { MKSTREAM: true });
    // What is not awaited goes out as one pipeline.
    await Promise.all(Array.from({ length: 100 }, (_, n) => client.xAdd('s', '*', { n: String(n), pad: 'ü\r\n' })));
    const replies = await client.multi().xAdd('s', '*', { n: '100' }).xAdd('s', '*', { n: '101' }).xLen('s').exec();
    console.log(JSON.stringify(replies[2]));
  },
  async work(client) {
    const [{ messages }] = await client.xReadGroup('g', 'a', { key: 's', id: '>' }, { COUNT: 40 });
    console.log(JSON.stringify(await client.xAck('s', 'g', messages.slice(0, 10).map((m) => m.id))));
    await client.xReadGroup('g', 'a', { key: 's', id: '>' }, { COUNT: 5 });
    console.log('holding');
    await client.xRead({ key: 'never', id: '$' }, { BLOCK: 0 });
  },
  async recover(client) {
    const seen = [];
    let start = '0-0';
    do {
      const got = await client.xAutoClaim('s', 'g', 'b', 0, start, { COUNT: 10 });
      start = got.nextId;
      seen.push(...N(got.messages));
      await client.xAck('s', 'g', got.messages.map((m) => m.id));
    } while (start !== '0-0');
    for (;;) {
      const got = await client.xReadGroup('g', 'b', { key: 's', id: '>' }, { COUNT: 25 });
      if (got === null) break;
      seen.push(...N(got[0].messages));
      await client.xAck('s', 'g', got[0].messages.map((m) => m.id));
    }
    console.log(JSON.stringify(seen.sort((a, b) => a - b)));
  },
  async wait(client) {
    const got = await client.xReadGroup('g', 'b', { key: 's', id: '>' }, { BLOCK: 60000 });
    console.log(JSON.stringify(N(got[0].messages)));
  },
  async watch(client) {
    const other = client.duplicate();
    await other.connect();
    await client.watch('s');
    await other.xAdd('s', '*', { n: '-1' });
    await other.quit();
    try {
      await client.multi().xLen('s').exec();
    } catch (error) {
      console.log(JSON.stringify(error.constructor.name === 'WatchError' ? 'aborted' : String(error)));
    }
  },
  async wrong(client) {
    await client.set('text', 'x');
    try {
      await client.xAdd('text', '*', { a: 'b' });
    } catch (error) {
      console.log(JSON.stringify(error.message.split(' ')[0]));
    }
  },
  // Reads only what is new and is done with each at once, until it is killed: a worker that stays as it is.
  async serve(client) {
    for (;;) {
      const got = await client.xReadGroup('g', 'a', { key: 's', id: '>' }, { COUNT: 5, BLOCK: 1000 });
      for (const message of got === null ? [] : got[0].messages) {
        console.log('did', Number(message.message.n));
        await client.xAck('s', 'g', message.id);
      }
    }
  },
};

(async () => {
  const client = createClient({ socket: { ...where, reconnectStrategy: () => new Error('gone') } });
  client.on('error', () => {});
  await client.connect();
  await steps[step](client);
  await client.quit();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
