import { useEffect, useState } from "preact/hooks";
import { fetchUnknown, type Binary } from "../model/api.ts";
import type { View } from "../model/view.ts";
import { formatCount, formatPercent, formatValue } from "../model/format.ts";
import type { Model } from "../model/model.ts";
import { printable } from "../model/names.ts";
import { formatRange, formatSpan } from "../model/time.ts";

/** What the picture is made of, and what is missing in it. */
export function StatusBar({ model, view, live, loading }: { model: Model; view: View; live: boolean; loading: boolean }) {
  const { meta } = model;
  const now = Date.now();
  return (
    <footer class="status" data-testid="status">
      <span><b>{formatCount(meta.samples)}</b> samples</span>
      <span><b>{formatCount(meta.profiles)}</b> profiles</span>
      <span>{formatRange(meta.from_ms, meta.until_ms, now)} ({formatSpan(meta.until_ms - meta.from_ms)})</span>
      <span>total <b data-testid="total" data-value={model.total}>{model.value(model.total)}</b></span>
      {model.diff && <span data-testid="events">events: base <b>{formatCount(meta.base_events ?? meta.base_samples ?? 0)}</b>, now <b>{formatCount(meta.events ?? meta.samples)}</b></span>}
      {!model.diff && <Unknown model={model} view={view} />}
      {model.sampledOut > 0 && <Part word="totals only" value={model.sampledOut} model={model} help="Value of profiles that a sampling rule reduced to their sum (__sampled__): no stacks are kept of it" />}
      {(meta.superseded ?? 0) > 0 && <span title="Profiles of the host agent that are left out: the same process was profiled from inside at that time">seen twice <b>{formatCount(meta.superseded!)}</b></span>}
      {!model.diff && <Part word="truncated" value={meta.truncated} model={model} help="Value of stacks that were deeper than the sampler's limit" />}
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

/** How much has no name; opened, it says in which binaries and why. */
function Unknown({ model, view }: { model: Model; view: View }) {
  const [isOpen, setOpen] = useState(false);
  const [found, setFound] = useState<Binary[] | string | null>(null);
  useEffect(() => {
    if (!isOpen) return;
    let gone = false;
    fetchUnknown(view).then((b) => gone || setFound(b), (e: unknown) => gone || setFound(e instanceof Error ? e.message : String(e)));
    return () => void (gone = true);
  }, [isOpen, model]);
  const part = <Part word="unknown" value={model.unknown} model={model} help="Value of frames without a name: upload or install symbols of those binaries" />;
  if (model.unknown === 0) return part;
  return (
    <details class="unknown" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary data-testid="unknown">{part}</summary>
      <ul>
        {found === null && <li>Asking which binaries…</li>}
        {typeof found === "string" && <li>{printable(found)}</li>}
        {Array.isArray(found) && found.slice(0, 50).map((b, i) => (
          <li key={i}>
            <b>{model.percent(b.value)}</b> {printable(b.file || "no binary known")}: {printable(b.reason.replace(/-/g, " "))}
            <div class="muted">{printable(b.what_to_do)} ({formatCount(b.frames)} addresses)</div>
          </li>
        ))}
        {Array.isArray(found) && found.length === 0 && <li>No binary is named: the sender wrote its own marks.</li>}
      </ul>
    </details>
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
