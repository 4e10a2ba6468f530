#!/usr/bin/env node
// The query engine of LiteLLM's database client, for machines that can reach npm and not the host of its binaries.
//
// LiteLLM's Python client starts a program and asks it over HTTP, in GraphQL. The npm package @prisma/client has the
// same engine as WebAssembly, which is asked in JSON and reaches Postgres through the package pg. This is the program:
// it translates one into the other. For tests alone; tests/setup/spenddb.sh puts it beside its node_modules.
//
// usage: engine.mjs --version | engine.mjs -p PORT …
// environment: PRISMA_DML_PATH, the schema; SPENDDB_SOCKET and SPENDDB_NAME, where the database is; SPENDDB_LOG, a file.

import fs from "node:fs";
import http from "node:http";
import { createRequire } from "node:module";

// What the client asks for by name: prisma 5.17.
const VERSION = "393aa359c9ad4a4bb28630fb5613f9c281cde053";
if (process.argv[2] === "--version") {
  console.log(`query-engine ${VERSION}`);
  process.exit(0);
}

const require = createRequire(import.meta.url);
const { parse } = require("graphql");
const pg = require("pg");
const { PrismaPg } = require("@prisma/adapter-pg");
const { bindAdapter } = require("@prisma/driver-adapter-utils");
const runtime = require.resolve("@prisma/client").replace(/[^/]*$/, "runtime/");
const glue = require(`${runtime}query_engine_bg.postgresql.js`);

const log = process.env.SPENDDB_LOG;
const note = (...words) => log && fs.appendFileSync(log, `${words.join(" ").slice(0, 2000)}\n`);

const schema = fs
  .readFileSync(process.env.PRISMA_DML_PATH, "utf8")
  .replace(/generator\s+\w+\s*\{[^}]*\}/, 'generator client {\n provider = "prisma-client-js"\n previewFeatures = ["driverAdapters"]\n}')
  // The adapter has the address; the engine wants to read one all the same.
  .replace(/url\s*=\s*env\("DATABASE_URL"\)/, 'url = "postgresql://unused"');

async function start() {
  const module = await WebAssembly.compile(fs.readFileSync(`${runtime}query_engine_bg.postgresql.wasm`));
  const instance = await WebAssembly.instantiate(module, { "./query_engine_bg.js": glue });
  glue.__wbg_set_wasm(instance.exports);
  // Times as Postgres writes them: the client parses them itself.
  for (const type of [1114, 1184]) pg.types.setTypeParser(type, (text) => text);
  const pool = new pg.Pool({
    host: process.env.SPENDDB_SOCKET,
    database: process.env.SPENDDB_NAME,
    user: "sluice",
    max: 10,
  });
  const options = {
    datamodel: schema,
    logLevel: "error",
    logQueries: false,
    ignoreEnvVarErrors: true,
    datasourceOverrides: {},
    env: {},
    configDir: ".",
    engineProtocol: "json",
  };
  const engine = new glue.QueryEngine(options, (line) => note("engine:", line), bindAdapter(new PrismaPg(pool)));
  await engine.connect("{}");
  return engine;
}

// In GraphQL a Json value travels as a string; the engine takes an untagged string for a JSON string. So: the names
// of fields that are Json wherever they are.
const jsonFields = new Set();
{
  const types = new Map();
  for (const [, field, type] of schema.matchAll(/^\s+(\w+)\s+(\w+)(?:\[\])?\??/gm)) {
    types.set(field, (types.get(field) ?? new Set()).add(type));
  }
  for (const [field, all] of types) if (all.size === 1 && all.has("Json")) jsonFields.add(field);
}

// Members in which a field's value stands one level further down.
const WRAPPERS = ["set", "equals", "not"];

function tagged(value, field) {
  if (typeof value === "string" && jsonFields.has(field)) return { $type: "Json", value };
  if (Array.isArray(value)) return value.map((item) => tagged(item, field));
  if (value === null || typeof value !== "object" || value.$type) return value;
  const entries = Object.entries(value);
  return Object.fromEntries(entries.map(([name, item]) => [name, tagged(item, WRAPPERS.includes(name) ? field : name)]));
}

// Answers as the client reads them: without tags.
function untagged(value) {
  if (Array.isArray(value)) return value.map(untagged);
  if (value === null || typeof value !== "object") return value;
  if ("$type" in value && "value" in value) return value.$type === "BigInt" ? Number(value.value) : value.value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, untagged(item)]));
}

function literal(node, variables) {
  switch (node.kind) {
    case "Variable":
      return variables?.[node.name.value];
    case "IntValue": {
      const number = Number(node.value);
      return Number.isSafeInteger(number) ? number : { $type: "BigInt", value: node.value };
    }
    case "FloatValue":
      return Number(node.value);
    case "NullValue":
      return null;
    case "ListValue":
      return node.values.map((item) => literal(item, variables));
    case "ObjectValue":
      return Object.fromEntries(node.fields.map((field) => [field.name.value, literal(field.value, variables)]));
    default:
      return node.value; // a string, a boolean, an enum's word
  }
}

const argumentsOf = (field, variables) =>
  Object.fromEntries((field.arguments ?? []).map((one) => [one.name.value, literal(one.value, variables)]));

function selectionOf(set, variables) {
  const fields = set?.selections ?? [];
  const inner = (field) =>
    field.selectionSet
      ? { arguments: argumentsOf(field, variables), selection: selectionOf(field.selectionSet, variables) }
      : true;
  return Object.fromEntries(fields.map((field) => [field.name.value, inner(field)]));
}

// A name in GraphQL is an action and a model: createOneLiteLLM_SpendLogs. Longer actions first.
const ACTIONS = [
  "findUniqueOrThrow", "findFirstOrThrow", "findUnique", "findFirst", "findMany", "createOne", "createMany",
  "updateOne", "updateMany", "upsertOne", "deleteOne", "deleteMany", "aggregate", "groupBy", "queryRaw", "executeRaw",
];
const COUNTING = ["createMany", "updateMany", "deleteMany"];

function translate(query, variables) {
  const field = parse(query).definitions[0].selectionSet.selections[0];
  const name = field.name.value;
  const action = ACTIONS.find((one) => name.startsWith(one));
  const modelName = name.slice(action.length) || undefined;
  const selection = action.endsWith("Raw") ? {} : selectionOf(field.selectionSet, variables);
  if (COUNTING.includes(action)) selection.count = true;
  const body = { action, query: { arguments: tagged(argumentsOf(field, variables), ""), selection } };
  return { alias: field.alias?.value ?? name, name, body: modelName ? { modelName, ...body } : body };
}

const engine = await start();

async function ask({ query, variables }, transaction) {
  const { alias, name, body } = translate(query, variables);
  note("ask:", JSON.stringify(body));
  const answer = JSON.parse(await engine.query(JSON.stringify(body), "{}", transaction));
  if (answer.errors) {
    note("refused:", JSON.stringify(answer.errors));
    return { data: { [alias]: null }, errors: answer.errors };
  }
  const data = answer.data[name] ?? answer.data[body.action] ?? Object.values(answer.data)[0];
  return { data: { [alias]: body.action === "queryRaw" ? data : untagged(data) } };
}

async function askAll(request, outer) {
  const limits = '{"max_wait":5000,"timeout":30000}';
  const own = !outer && request.transaction ? JSON.parse(await engine.startTransaction(limits, "{}")).id : undefined;
  const batchResult = [];
  for (const one of request.batch) {
    const answer = await ask(one, outer ?? own);
    if (answer.errors) {
      if (own) await engine.rollbackTransaction(own, "{}");
      return answer;
    }
    batchResult.push(answer);
  }
  if (own) await engine.commitTransaction(own, "{}");
  return { batchResult };
}

async function route(url, text, transaction) {
  if (url === "/status") return { status: "ok" };
  if (url.startsWith("/metrics")) return { counters: [], gauges: [], histograms: [] };
  if (url === "/transaction/start") return JSON.parse(await engine.startTransaction(text, "{}"));
  const ending = url.match(/^\/transaction\/([^/]+)\/(commit|rollback)$/);
  if (ending) {
    await engine[`${ending[2]}Transaction`](ending[1], "{}");
    return {};
  }
  const request = JSON.parse(text);
  return request.batch ? askAll(request, transaction) : ask(request, transaction);
}

function fault(error) {
  const message = String(error?.message ?? error);
  const user_facing_error = { is_panic: false, message, error_code: "P2010", meta: {} };
  return { errors: [{ error: message, user_facing_error }] };
}

const server = http.createServer(async (request, response) => {
  let text = "";
  for await (const piece of request) text += piece;
  let answer;
  try {
    answer = await route(request.url, text, request.headers["x-transaction-id"]);
  } catch (error) {
    note("failed:", error?.stack ?? error, text);
    answer = fault(error);
  }
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(answer));
});
server.listen(Number(process.argv[process.argv.indexOf("-p") + 1]), "127.0.0.1");
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(0));
