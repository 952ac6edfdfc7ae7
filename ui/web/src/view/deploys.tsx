import { useEffect, useState } from "preact/hooks";
import { fetchLabelNames, fetchSeries } from "../model/api.ts";
import { deploysOf, VERSION_LABELS, type Deploy } from "../model/deploys.ts";
import { printable } from "../model/names.ts";
import { servicesOf, withValue } from "../model/selector.ts";
import { CHART_STEPS, stepOf } from "../model/series.ts";
import { clock, parseTime } from "../model/time.ts";
import { isDiff, type View } from "../model/view.ts";
import type { Change } from "./state.ts";

interface Props {
  view: View;
  /** What the chart shows, in Unix milliseconds; a new one says that there is new data. */
  window: readonly [number, number] | null;
  change: Change;
}

/** Marks on the chart where a service's version was first seen; a click compares it with the one before. */
export function Deploys({ view, window: range, change }: Props) {
  const [label, deploys] = useDeploys(view, range);
  if (!range || deploys.length === 0) return null;
  const compare = (deploy: Deploy) =>
    change({ q: withValue(view.q, label, deploy.version), base_q: withValue(view.q, label, deploy.before), base_from: "", base_until: "", zoom: "" }, true);
  return (
    <div class="deploys" role="group" aria-label="Versions first seen">
      {deploys.map((deploy) => {
        const at = (deploy.atMs - range[0]) / (range[1] - range[0]);
        const words = `${label} ${printable(deploy.version)} from ${clock(deploy.atMs, true)}: compare with ${printable(deploy.before)}`;
        return at >= 0 && at <= 1 && (
          <button type="button" key={deploy.version} class="deploy" style={{ left: `${100 * at}%` }} title={words} aria-label={words} data-version={deploy.version} onClick={() => compare(deploy)}>
            <span>{printable(deploy.version)}</span>
          </button>
        );
      })}
    </div>
  );
}

const AGAIN_MS = 30_000;

/** Asked for one service alone: versions of several would say nothing of each other. */
function useDeploys(view: View, range: Props["window"]): [string, Deploy[]] {
  const [found, setFound] = useState<[string, Deploy[]]>(["", []]);
  const { type, q, from, until } = view;
  const wanted = !isDiff(view) && type !== "" && range !== null && servicesOf(q).length > 0;
  const round = range ? Math.floor(range[1] / AGAIN_MS) : 0;
  useEffect(() => {
    if (!wanted) return setFound(["", []]);
    const abort = new AbortController();
    const ask = async () => {
      const names = await fetchLabelNames({ type, q, from, until });
      const label = VERSION_LABELS.find((name) => names.includes(name));
      if (!label || abort.signal.aborted) return setFound(["", []]);
      const now = Date.now();
      const start = parseTime(from, now);
      const step = stepOf(start, parseTime(until, now), CHART_STEPS);
      const series = await fetchSeries({ type, q, from, until }, step, abort.signal, label);
      if (!abort.signal.aborted) setFound([label, deploysOf(series, label, start)]);
    };
    // The graph is what was asked for; marks are an addition that may fail.
    ask().catch(() => abort.signal.aborted || setFound(["", []]));
    return () => abort.abort();
  }, [type, q, from, until, wanted, round]);
  return found;
}
