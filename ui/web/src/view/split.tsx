import { useEffect, useMemo, useState } from "preact/hooks";
import { fetchLabelNames, fetchSeries, type Series } from "../model/api.ts";
import { formatCount, formatPercent, formatValue } from "../model/format.ts";
import type { Model } from "../model/model.ts";
import { printable } from "../model/names.ts";
import { withValue } from "../model/selector.ts";
import { stepOf } from "../model/series.ts";
import { sparkPath, splitRows, type SplitRow } from "../model/split.ts";
import { parseTime } from "../model/time.ts";
import type { View } from "../model/view.ts";
import type { Change } from "./state.ts";

interface Props {
  view: View;
  /** A new one says that there is new data. */
  model: Model;
  change: Change;
}

/** Rows that are drawn; what is beyond is summed up. */
const ROWS = 300;
const STEPS = 60;
const WIDTH = 160;
const HEIGHT = 18;

/** Who costs what: the values of a label, each with its share and its line over time. A click selects the value. */
export function Split({ view, model, change }: Props) {
  const names = useNames(view);
  const [loaded, error] = useSeries(view, model);
  const rows = useMemo(() => (loaded ? splitRows(loaded.series, loaded.by, ...loaded.window) : []), [loaded]);
  const total = rows.reduce((sum, row) => sum + row.sum, 0);
  const rest = rows.slice(ROWS).reduce((sum, row) => sum + row.sum, 0);
  const choose = (row: SplitRow) => change({ q: withValue(view.q, loaded!.by, row.value), view: "both", zoom: "" }, true);
  return (
    <section class="table-host split" data-testid="split" aria-label={`Cost by ${printable(view.by)}`}>
      <table class="rows">
        <thead>
          <tr>
            <th scope="col" class="name plain">
              <label>By{" "}
                <select class="field" value={view.by} onChange={(e) => change({ by: e.currentTarget.value }, true)} data-testid="split-by">
                  {[...new Set([view.by, ...names])].map((name) => <option key={name} value={name}>{printable(name)}</option>)}
                </select>
              </label>
            </th>
            <th scope="col" class="spark plain">Over time</th>
            <th scope="col" class="cost plain">Total</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, ROWS).map((row) => (
            <tr key={row.value} data-value={row.value} data-sum={row.sum} onClick={() => choose(row)}>
              <td class="name">
                <button type="button" class="link" title={`Select ${view.by}="${printable(row.value)}"`}>{row.value === "" ? `(without ${printable(loaded!.by)})` : printable(row.value)}</button>
              </td>
              <td class="spark"><Spark row={row} window={loaded!.window} /></td>
              <td class="cost">
                <span class="bar" style={{ width: `${(100 * row.sum) / total}%` }} />
                <span class="value">{formatValue(row.sum, loaded!.series.unit)}</span>
                <span class="percent">{formatPercent(row.sum, total)}</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS && <p class="table-note">{formatCount(rows.length - ROWS)} more values with {formatPercent(rest, total)} of the total.</p>}
      {error && <p class="table-note" role="alert">{error}</p>}
    </section>
  );
}

function Spark({ row, window: [from, until] }: { row: SplitRow; window: readonly [number, number] }) {
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      <path d={sparkPath(row.line, from, until, WIDTH, HEIGHT)} />
    </svg>
  );
}

/** Names of the labels that the selection has. */
function useNames(view: View): string[] {
  const [names, setNames] = useState<string[]>([]);
  useEffect(() => {
    let gone = false;
    fetchLabelNames(view).then((list) => gone || setNames(list), () => undefined);
    return () => {
      gone = true;
    };
  }, [view.type, view.q, view.from, view.until]);
  return names;
}

interface Loaded {
  readonly series: Series;
  readonly by: string;
  readonly window: readonly [number, number];
}

/** The sums by the label's values; the old ones stay in sight while new ones are on their way. */
function useSeries(view: View, model: Model): [Loaded | null, string] {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState("");
  useEffect(() => {
    const abort = new AbortController();
    const now = Date.now();
    const window = [parseTime(view.from, now), parseTime(view.until, now)] as const;
    fetchSeries(view, stepOf(...window, STEPS), abort.signal, view.by).then(
      (series) => {
        if (abort.signal.aborted) return;
        setLoaded({ series, by: view.by, window });
        setError("");
      },
      (e: unknown) => abort.signal.aborted || setError(e instanceof Error ? e.message : String(e)),
    );
    return () => abort.abort();
  }, [view.type, view.q, view.from, view.until, view.by, model]);
  return [loaded, error];
}
