import { useEffect, useState } from "preact/hooks";
import { ApiError, fetchTargets, type Target } from "../model/api.ts";
import { printable } from "../model/names.ts";
import type { View } from "../model/view.ts";
import type { Change } from "./state.ts";

/** What went wrong and what to do, above what is still shown. */
export function ErrorNote({ error, onAgain, change }: { error: Error; onAgain(): void; change: Change }) {
  const status = error instanceof ApiError ? error.status : -1;
  return (
    <div class="note error" role="alert" data-testid="error">
      <strong>{title(status)}</strong>
      <span>{printable(error.message)}</span>
      <span class="note-actions">
        <button type="button" onClick={onAgain}>Try again</button>
        {status === 400 && <button type="button" onClick={() => change({ q: "", type: "", from: "now-1h", until: "now" }, true)}>Reset the selection</button>}
      </span>
    </div>
  );
}

function title(status: number): string {
  if (status === 0) return "No connection";
  if (status === 400) return "The server cannot read this selection";
  if (status === 404) return "Not found";
  if (status === 429) return "Too many questions at once";
  return status > 0 ? `The server failed (${status})` : "The answer cannot be read";
}

/** Nothing to draw: says why, and what to do next. */
export function EmptyState({ view, hasTypes, change }: { view: View; hasTypes: boolean; change: Change }) {
  const [targets, setTargets] = useState<Target[] | null>(null);
  useEffect(() => {
    let gone = false;
    const ask = () => fetchTargets().then((t) => gone || setTargets(t), () => gone || setTargets([]));
    ask();
    const timer = setInterval(ask, 5000);
    return () => {
      gone = true;
      clearInterval(timer);
    };
  }, []);
  return (
    <section class="empty" data-testid="empty">
      <Flame />
      <h1>{hasTypes ? "No samples in this selection" : "Nothing has arrived yet"}</h1>
      {hasTypes ? <Widen view={view} change={change} /> : <p>The page shows the first flame graph by itself as soon as a profile arrives.</p>}
      <Targets targets={targets} />
      {!hasTypes && <FirstSteps />}
    </section>
  );
}

function Widen({ view, change }: { view: View; change: Change }) {
  return (
    <p class="actions">
      <button type="button" class="primary" onClick={() => change({ from: "now-24h", until: "now" }, true)}>Look at the last 24 hours</button>
      {view.q !== "" && <button type="button" onClick={() => change({ q: "" }, true)}>Remove all label conditions</button>}
    </p>
  );
}

function Targets({ targets }: { targets: Target[] | null }) {
  if (targets === null) return <p class="muted">Asking what is scraped…</p>;
  if (targets.length === 0) return <p class="muted">No targets are scraped. Name your services in a file and start with <code>pilotlight up --config pilotlight.yaml</code>.</p>;
  return (
    <table class="targets">
      <caption>What is scraped</caption>
      <thead><tr><th scope="col">Target</th><th scope="col">State</th><th scope="col">Last word</th></tr></thead>
      <tbody>
        {targets.slice(0, 50).map((t) => (
          <tr key={t.scrapeUrl}>
            <td>{printable(t.labels?.service_name ?? t.scrapePool ?? "")}<div class="muted">{printable(t.scrapeUrl)}</div></td>
            <td><span class={`health ${t.health === "up" ? "up" : t.health === "down" ? "down" : ""}`}>{printable(t.health)}</span></td>
            <td>{t.lastError ? printable(t.lastError) : since(t.lastScrape)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function since(time: string): string {
  const ms = Date.now() - Date.parse(time);
  return Number.isNaN(ms) || ms > 1e10 ? "the first capture is running" : `scraped ${Math.max(0, Math.round(ms / 1e3))} s ago`;
}

function FirstSteps() {
  return (
    <ol class="steps">
      <li>In a Rust service: <code>cargo add pilotlight</code>, and one line in <code>main</code>:<pre>let _pilotlight = pilotlight::start("checkout")?;</pre></li>
      <li>Any program with <code>/debug/pprof</code> works too, Go's <code>net/http/pprof</code> for one.</li>
      <li>List it in <code>pilotlight.yaml</code>:<pre>{"scrape_configs:\n  - job_name: checkout\n    static_configs:\n      - targets: [\"127.0.0.1:6060\"]"}</pre></li>
    </ol>
  );
}

export function Flame() {
  return (
    <svg class="logo" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
      <path fill="#f5821f" d="M12 1.5c.6 4-4.8 6.4-4.8 12a4.9 4.9 0 0 0 2 4c-.5-3 1-4.8 2.6-6.3.2 2 2.2 2.9 2.2 5.200 0 .8-.2 1.300-.5 1.9 2.4-.8 3.8-2.700 3.8-5.200 0-4.6-4-6.6-5.3-11.6z" />
      <path fill="#2f8fe6" d="M5 21h14v1.800H5z" />
    </svg>
  );
}
