import { formatCount, formatPercent, formatValue } from "../model/format.ts";
import type { Model } from "../model/model.ts";
import { printable } from "../model/names.ts";
import { formatRange, formatSpan } from "../model/time.ts";

/** What the picture is made of, and what is missing in it. */
export function StatusBar({ model, live, loading }: { model: Model; live: boolean; loading: boolean }) {
  const { meta } = model;
  const now = Date.now();
  return (
    <footer class="status" data-testid="status">
      <span><b>{formatCount(meta.samples)}</b> samples</span>
      <span><b>{formatCount(meta.profiles)}</b> profiles</span>
      <span>{formatRange(meta.from_ms, meta.until_ms, now)} ({formatSpan(meta.until_ms - meta.from_ms)})</span>
      <span>total <b data-testid="total" data-value={model.total}>{model.value(model.total)}</b></span>
      <Part word="unknown" value={model.unknown} model={model} help="Value of frames without a name: upload or install symbols of those binaries" />
      <Part word="truncated" value={meta.truncated} model={model} help="Value of stacks that were deeper than the sampler's limit" />
      <span title="Nodes that the server left out because the tree was too big">
        cut <b>{formatCount(meta.cut_nodes)}</b>{meta.cut_nodes > 0 && ` (${formatPercent(meta.cut_value, model.total)})`}
      </span>
      {meta.partial && <Problems problems={meta.problems} />}
      <span class="spring" />
      <span class={`pulse${loading ? " on" : ""}`} aria-hidden="true" />
      <span>{live ? "live, every 5 s" : "fixed time"}</span>
    </footer>
  );
}

function Part({ word, value, model, help }: { word: string; value: number; model: Model; help: string }) {
  return (
    <span title={`${help} (${formatValue(value, model.meta.unit)})`} class={value > model.total * 0.05 ? "warn" : ""}>
      {word} <b>{formatPercent(value, model.total)}</b>
    </span>
  );
}

function Problems({ problems }: { problems: Model["meta"]["problems"] }) {
  return (
    <details class="problems">
      <summary>partial: {problems.length} unreadable</summary>
      <ul>
        {problems.slice(0, 50).map((p, i) => (
          <li key={i}>{p.segment ? `${printable(p.segment)}: ` : ""}{printable(p.reason)}</li>
        ))}
      </ul>
    </details>
  );
}
