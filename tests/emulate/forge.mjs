// A forge of GitHub's kind on one port: git over HTTP (`git http-backend`) for the bare repository DIRECTORY/octo/app.git at
// /octo/app.git, and the API of the emulator at /api/v3. The emulator gets each pushed commit with its id before it is asked for
// anything. It finds no conflicts; `git merge-tree` does so here, and the first look at two commits gives no decision, as GitHub's
// does. A merge is made here too, as a commit of the repository, and so are GraphQL's `markPullRequestReadyForReview` and the answer
// 409 to a head that has moved. The token is the one line of DIRECTORY/token, its scopes those of DIRECTORY/scopes. App 7 with
// installation 70 gets tokens too; its key is written to DIRECTORY/app.pem. A file DIRECTORY/refuses makes every answer a refusal
// that repeats the credential; a file DIRECTORY/moves has another person push to the branch just before each merge. A file DIRECTORY/fails has the
// number of requests for each of git's services that are answered with 503 first. GET /_test/requests lists
// the requests, each with the processes of this host that show a token in their arguments or environment while the request waits;
// GET /_test/tokens lists the tokens of the installation, GET /_test/pulls the pull requests.
//
// usage: node forge.mjs NODE_MODULES DIRECTORY      (prints `listening on 127.0.0.1:PORT`, then serves until it is killed)
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';

const [modules, directory] = process.argv.slice(2);
const { createEmulator } = await import(`${modules}/emulate/dist/api.js`);
const token = readFileSync(`${directory}/token`, 'utf8').trim();
const bare = `${directory}/octo/app.git`;
const work = '/repos/octo/app';
const plain = { PATH: process.env.PATH, HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1' };
const emulator = await createEmulator({
  service: 'github',
  port: 0,
  seed: {
    tokens: { [token]: { login: 'octo', scopes: ['repo'] } },
    github: {
      users: [{ login: 'octo' }],
      repos: [{ owner: 'octo', name: 'app', auto_init: false }],
      apps: [{
        app_id: 7, slug: 'sluice', name: 'Sluice', events: [],
        permissions: { contents: 'write', pull_requests: 'write', workflows: 'write' },
        installations: [{ installation_id: 70, account: 'octo', repository_selection: 'all' }],
      }],
    },
  },
});
const key = emulator.generatedSecrets.find(({ kind }) => kind === 'github.app_private_key').value;
writeFileSync(`${directory}/app.pem`, key, { mode: 0o600 });
const api = emulator.url.replace('localhost', '127.0.0.1');

// -- Pushed commits, for the emulator -----------------------------------------------------------------------------------

function git(...words) {
  return execFileSync('git', ['-C', bare, ...words], { env: plain, encoding: 'utf8', maxBuffer: 1 << 26 });
}

async function ask(method, path, body) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  const answer = await fetch(api + path, { method, headers, body: body && JSON.stringify(body) });
  const data = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${JSON.stringify(data)}`);
  return data;
}

async function add(kind, body, sha) {
  const made = await ask('POST', `${work}/git/${kind}`, body);
  if (made.sha !== sha) throw new Error(`the emulator made ${made.sha} of ${sha}: ${JSON.stringify(body)}`);
}

const known = new Set();
const heads = new Map();

async function addCommit(sha) {
  const [tree, parents, name, email, date, committer, committerEmail, committed, ...message] =
    git('show', '--no-patch', '--format=%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI%n%B', sha).split('\n');
  const entries = [];
  for (const line of git('ls-tree', '-r', '-z', tree).split('\0').filter(Boolean)) {
    const [, mode, type, blob, path] = line.match(/^(\d+) (\w+) (\w+)\t(.*)$/s);
    const content = execFileSync('git', ['-C', bare, 'cat-file', type, blob], { env: plain }).toString('base64');
    if (!known.has(blob)) await add('blobs', { content, encoding: 'base64' }, blob);
    known.add(blob);
    entries.push({ mode, type, sha: blob, path });
  }
  await add('trees', { tree: entries }, tree);
  const body = {
    message: message.join('\n').trimEnd(), tree, parents: parents.split(' ').filter(Boolean),
    author: { name, email, date }, committer: { name: committer, email: committerEmail, date: committed },
  };
  await add('commits', body, sha);
}

async function tellPushes() {
  const refs = git('for-each-ref', '--format=%(refname) %(objectname)', 'refs/heads/').split('\n').filter(Boolean);
  for (const [ref, sha] of refs.map((line) => line.split(' '))) {
    if (heads.get(ref) === sha) continue;
    for (const commit of git('rev-list', '--reverse', '--topo-order', sha).split('\n').filter(Boolean)) {
      if (!known.has(commit)) await addCommit(commit);
      known.add(commit);
    }
    if (heads.has(ref)) await ask('PATCH', `${work}/git/${ref}`, { sha, force: true });
    else await ask('POST', `${work}/git/refs`, { ref, sha });
    heads.set(ref, sha);
  }
}

// -- Answers ------------------------------------------------------------------------------------------------------------

/** Commits of merges in the emulator, and those in the repository. */
const merges = new Map();
const requests = [];
/** Tokens of the installation. */
const issued = [];
const looked = new Set();
// One request to the emulator at a time.
let last = Promise.resolve();

/** Tells whether a pull request can be merged: null at the first look at its two commits. */
function isMergeable({ base, head }) {
  const pair = [base.ref, head.ref].map((name) => git('rev-parse', `refs/heads/${name}`).trim());
  if (!looked.has(pair.join())) {
    looked.add(pair.join());
    return null;
  }
  return spawnSync('git', ['-C', bare, 'merge-tree', '--write-tree', ...pair], { env: plain }).status === 0;
}

/** The processes that have a token, or its form in a header, in their arguments or environment. */
function shown() {
  const formsOf = (one) => [one.replace(/^[a-z]+_/, ''), Buffer.from(one).toString('base64').slice(0, -4)];
  const forms = [token, ...issued].flatMap(formsOf);
  const found = [];
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  for (const pid of pids) {
    for (const file of ['cmdline', 'environ']) {
      try {
        const text = readFileSync(`/proc/${pid}/${file}`, 'latin1');
        if (forms.some((form) => text.includes(form))) found.push(`${file} of ${text.slice(0, 200)}`);
      } catch {
        // It has ended.
      }
    }
  }
  return { processes: pids.length, shown: found };
}

function end(response, status, type, text) {
  const bytes = Buffer.from(text);
  response.writeHead(status, { 'content-type': type, 'content-length': bytes.length });
  response.end(bytes);
}

function tip(branch) {
  return git('for-each-ref', '--format=%(objectname)', `refs/heads/${branch}`).trim();
}

function commitOf(tree, message, parent) {
  const own = ['-c', 'user.name=octo', '-c', 'user.email=octo@localhost'];
  return git(...own, 'commit-tree', tree, '-p', parent, '-m', message).trim();
}

/** Makes the commit of a merge, and returns the status and the text of the answer. */
async function merge(number, { sha, merge_method: method, commit_title: title, commit_message: message }) {
  const { base, head } = await ask('GET', `${work}/pulls/${number}`);
  if (existsSync(`${directory}/moves`)) {
    const last = tip(head.ref);
    git('update-ref', `refs/heads/${head.ref}`, commitOf(`${last}^{tree}`, 'Pushed meanwhile', last));
  }
  if (sha !== tip(head.ref)) {
    return [409, JSON.stringify({ message: 'Head branch was modified. Review and try the merge again.' })];
  }
  if (method !== 'squash') throw new Error(`no merge by ${method} here`);
  await tellPushes();
  const made = await ask('PUT', `${work}/pulls/${number}/merge`, { merge_method: method });
  const [tree] = git('merge-tree', '--write-tree', tip(base.ref), sha).split('\n');
  const commit = commitOf(tree, `${title}\n\n${message}`, tip(base.ref));
  git('update-ref', `refs/heads/${base.ref}`, commit);
  merges.set(made.sha, commit);
  heads.set(`refs/heads/${base.ref}`, made.sha);
  return [200, JSON.stringify(made)];
}

/** Marks a draft as ready, which the emulator's REST API does. */
async function markReady({ query, variables: { id } }) {
  if (!query.includes('markPullRequestReadyForReview')) throw new Error(`no such query here: ${query}`);
  const pulls = await ask('GET', `${work}/pulls?state=all`);
  const { number } = pulls.find((one) => one.node_id === id);
  await ask('PATCH', `${work}/pulls/${number}`, { draft: false });
  return [200, JSON.stringify({ data: { markPullRequestReadyForReview: { pullRequest: { isDraft: false } } } })];
}

/** Answers what the emulator cannot; undefined for all else. */
async function answerHere(method, path, body) {
  if (method === 'POST' && path === '/graphql') return markReady(JSON.parse(body));
  const [, number] = path.match(/\/pulls\/(\d+)\/merge$/) ?? [];
  return method === 'PUT' && number ? merge(number, JSON.parse(body)) : undefined;
}

/** Gives a pull request the head that the branch has, and the decision about conflicts. */
function asIs(found) {
  if (found.merged) return { ...found, mergeable: null };
  return { ...found, head: { ...found.head, sha: tip(found.head.ref) }, mergeable: isMergeable(found) };
}

async function askEmulator(request, path, body) {
  const { authorization = '', 'content-type': type = 'application/json' } = request.headers;
  const answer = await fetch(api + path, { method: request.method, headers: { authorization, 'content-type': type }, body });
  const text = await answer.text();
  if (!answer.ok) return [answer.status, text];
  if (request.method === 'GET' && /\/pulls\/\d+$/.test(path)) return [answer.status, JSON.stringify(asIs(JSON.parse(text)))];
  if (path === '/app/installations/70/access_tokens') issued.push(JSON.parse(text).token);
  const [, deleted] = path.match(/\/git\/(refs\/heads\/.+)$/) ?? [];
  if (request.method === 'DELETE' && deleted) {
    git('update-ref', '-d', deleted);
    heads.delete(deleted);
  }
  return [answer.status, text];
}

async function answerApi(request, response, path, isAllowed) {
  const parts = [];
  for await (const part of request) parts.push(part);
  await tellPushes();
  const body = parts.length ? Buffer.concat(parts) : undefined;
  const [status, text] = (isAllowed && await answerHere(request.method, path, body)) || await askEmulator(request, path, body);
  if (isAllowed && existsSync(`${directory}/scopes`)) {
    response.setHeader('x-oauth-scopes', readFileSync(`${directory}/scopes`, 'utf8').trim());
  }
  const real = [...merges].reduce((known, [emulated, commit]) => known.replaceAll(emulated, commit), text);
  end(response, status, 'application/json', real);
}

async function answerGit(request, response, url) {
  const { 'content-type': type = '', 'content-encoding': encoding = '', 'git-protocol': protocol = '' } = request.headers;
  const env = {
    ...plain, GIT_PROJECT_ROOT: directory, GIT_HTTP_EXPORT_ALL: '1', REQUEST_METHOD: request.method, PATH_INFO: url.pathname,
    QUERY_STRING: url.search.slice(1), CONTENT_TYPE: type, HTTP_CONTENT_ENCODING: encoding, GIT_PROTOCOL: protocol,
    REMOTE_USER: 'octo', REMOTE_ADDR: '127.0.0.1',
  };
  const child = spawn('git', ['http-backend'], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => {});
  request.pipe(child.stdin);
  let head = Buffer.alloc(0);
  for await (let part of child.stdout) {
    if (!response.headersSent) {
      head = Buffer.concat([head, part]);
      const length = head.indexOf('\r\n\r\n');
      if (length < 0) continue;
      const fields = head.subarray(0, length).toString().split('\r\n').map((line) => line.split(': '));
      const status = fields.find(([name]) => name === 'Status');
      response.writeHead(status ? Number.parseInt(status[1], 10) : 200, fields.filter((field) => field !== status).flat());
      part = head.subarray(length + 4);
    }
    if (part.length && !response.write(part)) await once(response, 'drain');
  }
  response.end();
}

/** Failed requests for each of git's services. */
const failed = new Map();

function isOverloaded(url) {
  const service = url.searchParams.get('service');
  const most = existsSync(`${directory}/fails`) ? Number(readFileSync(`${directory}/fails`, 'utf8')) : 0;
  const count = failed.get(service) ?? 0;
  if (service === null || count >= most) return false;
  failed.set(service, count + 1);
  return true;
}

async function answer(request, response) {
  const url = new URL(request.url, 'http://localhost');
  if (url.pathname === '/_test/requests') return end(response, 200, 'application/json', JSON.stringify(requests));
  if (url.pathname === '/_test/tokens') return end(response, 200, 'application/json', JSON.stringify(issued));
  if (url.pathname === '/_test/pulls') {
    await tellPushes();
    return end(response, 200, 'application/json', JSON.stringify(await ask('GET', `${work}/pulls?state=all`)));
  }
  const given = request.headers.authorization ?? '';
  const basic = Buffer.from(given.replace(/^Basic /, ''), 'base64').toString();
  const used = [token, ...issued].find((one) => given === `Bearer ${one}` || basic === `x-access-token:${one}`);
  const isAllowed = used !== undefined;
  const isOfApp = issued.includes(used);
  requests.push({ method: request.method, path: request.url, isAllowed, isOfApp, ...(isAllowed ? shown() : {}) });
  if (isAllowed && existsSync(`${directory}/refuses`)) {
    const message = `no rights for ${given} (${used})`;
    const isApi = url.pathname.startsWith('/api/');
    return end(response, 403, isApi ? 'application/json' : 'text/plain', isApi ? JSON.stringify({ message }) : message);
  }
  if (url.pathname.startsWith('/api/')) {
    const before = last;
    last = (async () => {
      await before.catch(() => {});
      await answerApi(request, response, request.url.replace(/^\/api(\/v3)?/, ''), isAllowed);
    })();
    return last;
  }
  if (isAllowed && isOverloaded(url)) return end(response, 503, 'text/plain', 'try again');
  if (isAllowed) return answerGit(request, response, url);
  response.writeHead(401, { 'www-authenticate': 'Basic realm="forge"', 'content-length': 0 });
  return response.end();
}

const server = createServer((request, response) => {
  answer(request, response).catch((error) => {
    console.error(error);
    if (response.headersSent) response.destroy();
    else end(response, 500, 'text/plain', 'a fault of the forge');
  });
});
server.listen(0, '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
