import { decodeTree, type Tree } from "./pltr.ts";
import type { View } from "./view.ts";

export interface ProfileType {
  id: string;
  name: string;
  sample_type: string;
  sample_unit: string;
  period_type: string;
  period_unit: string;
}

export interface Series {
  unit: string;
  step_ms: number;
  series: { labels: Record<string, string>; points: [number, number][] }[];
}

export interface Target {
  labels: Record<string, string>;
  scrapePool: string;
  scrapeUrl: string;
  lastError: string;
  lastScrape: string;
  health: string;
}

/** An answer that is no success, with the server's own words. */
export class ApiError extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

type Query = Pick<View, "type" | "q" | "from" | "until">;

function address(path: string, query: Partial<Query> & Record<string, string>): string {
  const params = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v) params.set(k, v);
  return `api/v1/${path}?${params}`;
}

async function get(url: string, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(url, { signal: signal ?? null, credentials: "same-origin" });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new ApiError(0, "The server does not answer. Is `pilotlight up` still running? The page tries again by itself.");
  }
  if (answer.ok) return answer;
  throw new ApiError(answer.status, await reason(answer));
}

async function reason(answer: Response): Promise<string> {
  const text = await answer.text();
  try {
    const body = JSON.parse(text) as { error?: string };
    if (body.error) return body.error;
  } catch {
    // Not JSON: said below with the status.
  }
  return `The server answered ${answer.status} ${answer.statusText}`.trim();
}

type Base = Pick<View, "base_q" | "base_from" | "base_until">;

/** The selection beside its base, on one tree. */
export async function fetchDiff(q: Query & Base, signal?: AbortSignal): Promise<Tree> {
  const { base_q, base_from, base_until } = q;
  const answer = await get(address("diff", { ...pick(q), base_q, base_from, base_until }), signal);
  return decodeTree(await answer.arrayBuffer());
}

export interface Binary {
  file: string;
  build_id: string;
  /** Why it has no names: `no-debuginfo`, `wrong-id` … */
  reason: string;
  frames: number;
  value: number;
  what_to_do: string;
}

/** Binaries with frames that have no name, the largest value first. */
export async function fetchUnknown(q: Query): Promise<Binary[]> {
  return (await (await get(address("debuginfo", pick(q)))).json()).binaries ?? [];
}

export async function fetchTree(q: Query, signal?: AbortSignal): Promise<Tree> {
  const answer = await get(address("tree", pick(q)), signal);
  return decodeTree(await answer.arrayBuffer());
}

/** Source files of the heaviest functions, by name. */
export async function fetchFiles(q: Query, signal?: AbortSignal): Promise<Map<string, string>> {
  const body = await (await get(address("top", { ...pick(q), limit: "20000" }), signal)).json();
  const rows: { name: string; file?: string }[] = body.rows ?? [];
  return new Map(rows.filter((r) => r.file).map((r) => [r.name, r.file!.slice(0, 500)]));
}

/** Sums over time; `by` splits them by a label's values. */
export async function fetchSeries(q: Query, step: string, signal?: AbortSignal, by = ""): Promise<Series> {
  return (await get(address("series", { ...pick(q), step, by }), signal)).json();
}

export async function fetchTypes(q: Pick<Query, "from" | "until">): Promise<ProfileType[]> {
  const body = await (await get(address("types", { from: q.from, until: q.until }))).json();
  return body.types ?? [];
}

export async function fetchLabelNames(q: Query): Promise<string[]> {
  return (await (await get(address("labels", pick(q)))).json()).names ?? [];
}

export async function fetchLabelValues(name: string, q: Query): Promise<string[]> {
  return (await (await get(address(`labels/${encodeURIComponent(name)}/values`, pick(q)))).json()).values ?? [];
}

export async function fetchTargets(): Promise<Target[]> {
  const body = await (await get("api/v1/targets")).json();
  return body.data?.activeTargets ?? [];
}

/** Address of the selection as pprof, absolute: also for `go tool pprof`. */
export function pprofAddress(q: Query): string {
  return new URL(address("pprof", pick(q)), document.baseURI).href;
}

function pick(q: Query): Query {
  return { type: q.type, q: q.q, from: q.from, until: q.until };
}
