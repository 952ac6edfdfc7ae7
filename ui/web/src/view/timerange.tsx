import { useState } from "preact/hooks";
import { PRESETS, formatRange, formatSpan, parseTime } from "../model/time.ts";
import type { View } from "../model/view.ts";
import { useMenu } from "./menu.ts";

interface Props {
  view: View;
  onChange(from: string, until: string): void;
}

/** Which time: presets, or two points typed in the API's words. */
export function TimeRange({ view, onChange }: Props) {
  const { isOpen, setOpen, root } = useMenu();
  const now = Date.now();
  const preset = view.until === "now" ? PRESETS.find(([from]) => from === view.from) : undefined;
  const [from, until] = [parseTime(view.from, now), parseTime(view.until, now)];
  const words = preset?.[1] ?? `${formatRange(from, until, now)} (${formatSpan(until - from)})`;
  const choose = (a: string, b: string) => {
    setOpen(false);
    onChange(a, b);
  };
  const wider = () => {
    const half = (until - from) / 2;
    const end = Math.min(now, until + half);
    onChange(String(Math.round(end - (until - from) * 2)), end >= now - 1000 ? "now" : String(Math.round(end)));
  };

  return (
    <div class="time" {...root}>
      <button type="button" class="field" aria-expanded={isOpen} aria-haspopup="dialog" onClick={() => setOpen(!isOpen)} data-testid="time">
        {words}<span class="caret" aria-hidden="true">▾</span>
      </button>
      {!preset && <button type="button" class="icon" title="Twice the time" aria-label="Show twice the time" onClick={wider}>⤢</button>}
      {isOpen && <Menu view={view} onChoose={choose} />}
    </div>
  );
}

function Menu({ view, onChoose }: { view: View; onChoose(from: string, until: string): void }) {
  const [from, setFrom] = useState(readable(view.from));
  const [until, setUntil] = useState(readable(view.until));
  const [problem, setProblem] = useState<string | null>(null);
  const apply = (e: Event) => {
    e.preventDefault();
    const now = Date.now();
    const [a, b] = [parseTime(from, now), parseTime(until, now)];
    if (Number.isNaN(a) || Number.isNaN(b)) setProblem("Write a time as now-15m, 2026-11-29T14:00:00 or Unix seconds");
    else if (a >= b) setProblem("The start must be before the end");
    else onChoose(plain(from, a), plain(until, b));
  };
  return (
    <div class="menu time-menu" role="dialog" aria-label="Time range">
      <div class="presets">
        {PRESETS.map(([start, words]) => (
          <button type="button" key={start} class={view.from === start && view.until === "now" ? "on" : ""} onClick={() => onChoose(start, "now")}>{words}</button>
        ))}
      </div>
      <form onSubmit={apply}>
        <label>From <input value={from} onInput={(e) => setFrom(e.currentTarget.value)} /></label>
        <label>Until <input value={until} onInput={(e) => setUntil(e.currentTarget.value)} /></label>
        <button type="submit" class="primary">Apply</button>
        {problem && <p class="form-note" role="alert">{problem}</p>}
        <p class="hint">Or drag on the chart below.</p>
      </form>
    </div>
  );
}

/** Absolute times as local time a person can edit. */
function readable(text: string): string {
  if (text.startsWith("now")) return text;
  const ms = parseTime(text, Date.now());
  if (Number.isNaN(ms)) return text;
  const local = new Date(ms - new Date(ms).getTimezoneOffset() * 60e3);
  return local.toISOString().slice(0, 19);
}

function plain(text: string, ms: number): string {
  return text.trim().startsWith("now") ? text.trim() : String(Math.round(ms));
}
