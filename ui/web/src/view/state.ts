import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ApiError, fetchDiff, fetchFiles, fetchSeries, fetchTree, fetchTypes, type ProfileType, type Series } from "../model/api.ts";
import { Model } from "../model/model.ts";
import { servicesOf } from "../model/selector.ts";
import { CHART_STEPS, stepOf } from "../model/series.ts";
import { parseTime } from "../model/time.ts";
import { isDiff, isLive, readView, writeView, type View } from "../model/view.ts";

/** Changes a view; `push` makes a step that the browser's Back button undoes. */
export type Change = (part: Partial<View>, push?: boolean) => void;

/** The view in the address bar. */
export function useView(): [View, Change] {
  const [view, setView] = useState(() => readView(location.search));
  const latest = useRef(view);
  latest.current = view;
  useEffect(() => {
    const back = () => setView(readView(location.search));
    addEventListener("popstate", back);
    return () => removeEventListener("popstate", back);
  }, []);
  const change = useCallback<Change>((part, push = false) => {
    const next = { ...latest.current, ...part };
    if (next.view === "flame" || next.view === "icicle") next.dir = next.view;
    const [now, then] = [writeView(latest.current), writeView(next)];
    latest.current = next;
    if (now !== then) history[push ? "pushState" : "replaceState"](null, "", then);
    setView(next);
  }, []);
  return [view, change];
}

/** What was loaded for a selection. Old answers stay in sight while new ones are on their way. */
export interface Loaded {
  readonly types: ProfileType[] | null;
  readonly model: Model | null;
  readonly series: Series | null;
  /** Window of `series` in Unix milliseconds. */
  readonly window: readonly [number, number] | null;
  readonly loading: boolean;
  readonly error: ApiError | Error | null;
}

const REFRESH_MS = 5000;
const NOTHING: Loaded = { types: null, model: null, series: null, window: null, loading: true, error: null };

/** Loads types, tree and series of the view, and again every 5 s while it is live and in sight. */
export function useLoaded(view: View, change: Change): [Loaded, () => void] {
  const [loaded, setLoaded] = useState<Loaded>(NOTHING);
  const [round, setRound] = useState(0);
  const busy = useRef(false);
  const again = useCallback(() => setRound((r) => r + 1), []);
  const { type, q, from, until, base_q, base_from, base_until } = view;

  useEffect(() => {
    const abort = new AbortController();
    const update = (part: Partial<Loaded>) => abort.signal.aborted || setLoaded((old) => ({ ...old, ...part }));
    busy.current = true;
    update({ loading: true });
    load({ type, q, from, until, base_q, base_from, base_until }, abort.signal, update, change)
      .catch((e: unknown) => update({ error: e instanceof Error ? e : new Error(String(e)) }))
      .finally(() => {
        if (abort.signal.aborted) return;
        busy.current = false;
        update({ loading: false });
      });
    return () => abort.abort();
  }, [type, q, from, until, base_q, base_from, base_until, round]);

  useEffect(() => {
    if (!isLive(view) && !(loaded.error instanceof ApiError && loaded.error.status === 0)) return;
    const refresh = () => !document.hidden && !busy.current && again();
    const timer = setInterval(refresh, REFRESH_MS);
    document.addEventListener("visibilitychange", refresh);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", refresh);
    };
  }, [view.from, view.until, loaded.error]);
  return [loaded, again];
}

type Selection = Pick<View, "type" | "q" | "from" | "until" | "base_q" | "base_from" | "base_until">;

async function load(s: Selection, signal: AbortSignal, update: (p: Partial<Loaded>) => void, change: Change): Promise<void> {
  const types = s.type === "" ? await fetchTypes(s) : null;
  if (types) {
    update({ types });
    if (signal.aborted) return;
    const type = defaultType(types);
    if (!type) update({ model: null, series: null, error: null });
    else change({ type: type.id });
    return;
  }
  const now = Date.now();
  const range = [parseTime(s.from, now), parseTime(s.until, now)] as const;
  const seriesAnswer = fetchSeries(s, stepOf(...range, CHART_STEPS), signal).catch((e: unknown) => e as Error);
  const filesAnswer = learnFiles(s, signal);
  const tree = await (isDiff(s) ? fetchDiff : fetchTree)(s, signal).catch(nothingThere);
  if (tree === null) return update({ types: await fetchTypes(s), model: null, series: null, error: null });
  if (filesAnswer) await Promise.race([filesAnswer, new Promise((late) => setTimeout(late, FILES_WAIT_MS))]);
  if (signal.aborted) return;
  const model = Model.of(tree, servicesOf(s.q), files);
  update({ model, error: null });
  const known = files.size;
  const series = await seriesAnswer;
  if (!(series instanceof Error)) update({ series, window: range });
  update({ types: await fetchTypes(s) });
  await filesAnswer;
  if (files.size > known && !signal.aborted) update({ model: Model.of(tree, servicesOf(s.q), files) });
}

/** A selection without data is no failure: the empty state says what to do. */
function nothingThere(e: unknown): null {
  if (e instanceof ApiError && e.status === 404) return null;
  throw e;
}

/** Source files by function name, of all selections seen: they do not change while a program runs. */
const files = new Map<string, string>();
const FILES_WAIT_MS = 250;
const FILES_AGAIN_MS = 60_000;
const asked = new Map<string, number>();

/** Asks for source files, once a minute for a selection; the origins are right with them and good without. */
function learnFiles(s: Selection, signal: AbortSignal): Promise<void> | null {
  const key = `${s.type} ${s.q}`;
  if (Date.now() - (asked.get(key) ?? 0) < FILES_AGAIN_MS) return null;
  asked.set(key, Date.now());
  return fetchFiles(s, signal).then(
    (found) => found.forEach((file, name) => files.set(name, file)),
    () => void asked.delete(key),
  );
}

function defaultType(types: readonly ProfileType[]): ProfileType | undefined {
  return types.find((t) => t.sample_type === "cpu") ?? types.find((t) => t.sample_unit === "nanoseconds") ?? types[0];
}
