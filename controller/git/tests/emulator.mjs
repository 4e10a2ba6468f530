// Starts the emulator of GitHub with one repository and a branch, and says where it is. Each line of the input is one act of
// another person there; the answer is a line too. The end of the input ends the emulator.
//
// usage: node emulator.mjs NODE_MODULES
import { createInterface } from 'node:readline';

const { createEmulator } = await import(`${process.argv[2]}/emulate/dist/api.js`);
const emulator = await createEmulator({
  service: 'github',
  port: 0,
  seed: {
    tokens: { 'ghp-of-octo': { login: 'octo', scopes: ['repo'] } },
    github: {
      users: [{ login: 'octo' }],
      repos: [{ owner: 'octo', name: 'work', auto_init: true }],
      apps: [{
        app_id: 7, slug: 'sluice', name: 'Sluice', events: [],
        permissions: { contents: 'write', pull_requests: 'write', workflows: 'write' },
        installations: [{ installation_id: 70, account: 'octo', repository_selection: 'all' }],
      }],
    },
  },
});
// It listens on IPv4, and `localhost` may be another address.
const url = emulator.url.replace('localhost', '127.0.0.1');
const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

async function ask(method, path, body) {
  const headers = { authorization: 'Bearer ghp-of-octo', 'content-type': 'application/json' };
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  const data = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(data)}`);
  return data;
}

const work = '/repos/octo/work';

async function commitOn(branch) {
  const { object: { sha } } = await ask('GET', `${work}/git/ref/heads/${branch}`);
  const { tree } = await ask('GET', `${work}/git/commits/${sha}`);
  return ask('POST', `${work}/git/commits`, { message: 'a change', tree: tree.sha, parents: [sha] });
}

const acts = {
  ready: (number) => ask('PATCH', `${work}/pulls/${number}`, { draft: false }),
  async move(number) {
    const { sha } = await commitOn('main');
    await ask('PATCH', `${work}/git/refs/heads/main`, { sha });
    return ask('PUT', `${work}/pulls/${number}/update-branch`, {});
  },
  head: (branch) => ask('GET', `${work}/git/ref/heads/${branch}`),
  branches: () => ask('GET', `${work}/branches`),
  message: async (sha) => ask('GET', `${work}/git/commits/${sha}`),
  grants: () => ask('GET', '/_emulate/installation-tokens'),
};

const { sha } = await commitOn('main');
await ask('POST', `${work}/git/refs`, { ref: 'refs/heads/feature/PROJ-1-page', sha });
const key = emulator.generatedSecrets.find(({ kind }) => kind === 'github.app_private_key').value;
say({ url, key, sha });
for await (const line of createInterface({ input: process.stdin })) {
  const [act, of] = line.split(' ');
  say(await acts[act](of));
}
await emulator.close();
