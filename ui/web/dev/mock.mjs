// A stand-in for the server: every API route with synthetic data, and the page built from source.
// usage: node dev/mock.mjs [port]. The service_name in the selector chooses the data:
// checkout, synthetic-8k, synthetic-100k, synthetic-1m, hostile, empty, broken, slow, partial.
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "../build.mjs";
import { checkout, encode, hostile, HOT, totalOf, zipf } from "./synthetic.mjs";

const SERVICES = ["checkout", "synthetic-8k", "synthetic-100k", "synthetic-1m", "hostile", "empty", "broken", "slow", "partial"];
const CPU = { id: "process_cpu:cpu:nanoseconds:cpu:nanoseconds", name: "process_cpu", sample_type: "cpu", sample_unit: "nanoseconds", period_type: "cpu", period_unit: "nanoseconds" };
const SAMPLES = { ...CPU, id: "process_cpu:samples:count:cpu:nanoseconds", sample_type: "samples", sample_unit: "count" };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

const trees = new Map();
const bodies = new Map();

function treeOf(service) {
  const sizes = { "synthetic-8k": 8192, "synthetic-100k": 100_000, "synthetic-1m": 1_000_000 };
  const make = sizes[service] ? () => zipf(sizes[service]) : service === "hostile" ? hostile : checkout;
  if (!trees.has(service)) trees.set(service, make());
  return trees.get(service);
}

/** A base in which the hot function was half as heavy. */
function sides(tree) {
  const hot = tree.names.indexOf(HOT);
  return { tree, base: { ...tree, self: tree.self.map((v, i) => (tree.name[i] === hot ? Math.round(v / 2) : v)) } };
}

function time(text, fallback, now) {
  if (!text) return fallback;
  if (text === "now") return now;
  const m = /^now-(\d+)([smhd])$/.exec(text);
  if (m) return now - m[1] * { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 }[m[2]];
  return Number(text) < 1e11 ? Number(text) * 1e3 : Number(text);
}

function meta(tree, service, params, now) {
  const total = totalOf(tree);
  const partial = service === "partial";
  return {
    type: params.get("type") || CPU.id, unit: "nanoseconds", from_ms: time(params.get("from"), now - 3600e3, now), until_ms: time(params.get("until"), now, now),
    total, profiles: 360, samples: Math.round(total / 10_309_278), partial,
    problems: partial ? [{ segment: "2026-11-29/0004.seg", reason: "checksum differs at byte 8192" }] : [],
    unknown: total * 0.038, truncated: total * 0.002, cut_nodes: partial ? 1200 : 0, cut_value: partial ? total * 0.004 : 0,
  };
}

function treeBody(service, params, now) {
  const key = service + params.get("from");
  if (!bodies.has(key) || service === "checkout") {
    const tree = treeOf(service);
    const shown = service === "empty" ? { names: ["total"], depth: [0], name: [0], self: [0] } : tree;
    bodies.set(key, gzipSync(encode(shown, meta(shown, service, params, now)), { level: 6 }));
  }
  return bodies.get(key);
}

function series(service, params, now) {
  const [from, until] = [time(params.get("from"), now - 3600e3, now), time(params.get("until"), now, now)];
  const step = Number.parseInt(params.get("step") || "10") * 1e3;
  const points = [];
  for (let t = Math.ceil(from / step) * step; t < until && service !== "empty"; t += step) {
    const wave = 1 + 0.3 * Math.sin(t / 3e5) + 0.15 * Math.sin(t / 37e3);
    const spike = (t / 60e3) % 20 < 2 ? 2.2 : 1;
    points.push([t, Math.round(step * 1e6 * 1.4 * wave * spike)]);
  }
  const by = params.get("by");
  if (!by) return { unit: "nanoseconds", step_ms: step, series: [{ labels: {}, points }] };
  // The third quarter brings another version.
  const split = from + (until - from) * 0.6;
  if (by === "version") return { unit: "nanoseconds", step_ms: step, series: [["1.4", (t) => t < split], ["1.5", (t) => t >= split]].map(([version, runs]) => ({ labels: { version }, points: points.filter(([t]) => runs(t)) })) };
  // One value has a fifth of the cost, one lacks the label.
  const part = (labels, share) => ({ labels, points: points.map(([t, v]) => [t, v * share]) });
  return { unit: "nanoseconds", step_ms: step, series: [part({}, 0.05), part({ [by]: "b-1" }, 0.2), part({ [by]: "a-1" }, 0.75)] };
}

const TARGETS = [
  { labels: { service_name: "checkout" }, scrapePool: "checkout", scrapeUrl: "http://127.0.0.1:6060/debug/pprof/profile", lastError: "", lastScrape: new Date().toISOString(), health: "up" },
  { labels: { service_name: "search" }, scrapePool: "search", scrapeUrl: "http://127.0.0.1:7070/debug/pprof/profile", lastError: "connection refused: is the service running?", lastScrape: new Date().toISOString(), health: "down" },
];

/** Starts the mock. `log` collects request paths; `mode` may be switched to "down" or "fresh". */
export async function startMock(port = 0) {
  const files = await build();
  const state = { log: [], mode: "up" };
  const server = createServer(async (req, res) => {
    const url = new URL(req.url, "http://mock");
    state.log.push(url.pathname + url.search);
    const now = Date.now();
    const service = /service_name="([^"]+)"/.exec(url.searchParams.get("q") ?? "")?.[1] ?? "checkout";
    const json = (status, body) => res.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (state.mode === "down") return req.socket.destroy();
    const path = url.pathname;
    if (!path.startsWith("/api/")) {
      const name = path === "/" ? "index.html" : path.slice(1);
      if (!files[name]) return json(404, { error: "no such file" });
      return res.writeHead(200, { "content-type": TYPES[name.split(".").pop()], "content-security-policy": CSP, "x-content-type-options": "nosniff" }).end(files[name]);
    }
    if (service === "broken" && !path.endsWith("labels")) return json(500, { error: "segment 0004 in /data/segments could not be read: permission denied; make the folder readable for this user" });
    if (service === "slow") await new Promise((r) => setTimeout(r, 3000));
    if (url.searchParams.get("type") === "nope" && /tree|series|top/.test(path)) return json(404, { error: "type nope is not in this window" });
    if (path === "/api/v1/tree") {
      return res.writeHead(200, { "content-type": "application/vnd.pilotlight.tree", "content-encoding": "gzip" }).end(treeBody(service, url.searchParams, now));
    }
    if (path === "/api/v1/diff") {
      const { tree, base } = sides(treeOf("checkout"));
      const events = url.searchParams.get("base_q")?.includes("few") ? 12 : 5000;
      const m = { ...meta(tree, service, url.searchParams, now), base_total: totalOf(base), base_samples: events, samples: events, events, base_events: events };
      return res.writeHead(200, { "content-type": "application/vnd.pilotlight.tree", "content-encoding": "gzip" }).end(gzipSync(encode({ ...tree, base: base.self }, m)));
    }
    if (path === "/api/v1/debuginfo") return json(200, { binaries: [{ file: "/usr/lib/libssl.so.3", build_id: "c0ffee", reason: "no-debuginfo", frames: 12, value: 1e9, what_to_do: "pilotlight debuginfo upload FILE, the libssl.so.3 (or its debug file) with build id c0ffee" }] });
    if (path === "/api/v1/top") return json(200, { total: 1, unit: "nanoseconds", rows: [{ name: HOT, file: "/home/me/checkout/src/pricing.rs", self: 1, total: 1 }] });
    if (path === "/api/v1/types") return json(200, { types: state.mode === "fresh" ? [] : [CPU, SAMPLES] });
    if (path === "/api/v1/series") return json(200, series(service, url.searchParams, now));
    if (path === "/api/v1/labels") return json(200, { names: ["service_name", "instance", "pod", "version"] });
    const values = /^\/api\/v1\/labels\/(.+)\/values$/.exec(path);
    if (values) return json(200, { values: values[1] === "service_name" ? SERVICES : ["a-1", "a-2", "b-1"] });
    if (path === "/api/v1/targets") return json(200, { status: "success", data: { activeTargets: TARGETS, droppedTargets: [] } });
    if (path === "/api/v1/pprof") return res.writeHead(200, { "content-type": "application/octet-stream" }).end(gzipSync(""));
    return json(404, { error: `no such route: ${path}` });
  });
  await new Promise((ready) => server.listen(port, "127.0.0.1", ready));
  return { base: `http://127.0.0.1:${server.address().port}/`, state, close: () => new Promise((done) => (server.closeAllConnections(), server.close(done))) };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock(Number(process.argv[2] ?? 19000));
  console.log(`mock server on ${mock.base}`);
}
