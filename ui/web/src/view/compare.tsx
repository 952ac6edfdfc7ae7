import { useState } from "preact/hooks";
import { parseSelector } from "../model/selector.ts";
import { formatRange, formatSpan, parseTime } from "../model/time.ts";
import { isDiff, type View } from "../model/view.ts";
import { printable } from "../model/names.ts";
import type { Change } from "./state.ts";

interface Props {
  view: View;
  change: Change;
}

const NO_BASE = { base_q: "", base_from: "", base_until: "" };
const AGO: readonly (readonly [string, number])[] = [["an hour before", 3600e3], ["a day before", 86400e3], ["a week before", 7 * 86400e3]];

/** Opens and closes the comparison. */
export function CompareButton({ view, change }: Props) {
  const on = isDiff(view);
  return (
    <button type="button" class={`compare-toggle${on ? " on" : ""}`} aria-pressed={on} data-testid="compare" onClick={() => change(on ? NO_BASE : { ...before(view), zoom: "" }, true)} title={on ? "Show the selection alone" : "Compare with another time or version"}>
      {on ? "Stop comparing" : "Compare"}
    </button>
  );
}

/** The window of the same length just before. */
function before(view: View): Pick<View, "base_from" | "base_until"> {
  const now = Date.now();
  const [from, until] = [parseTime(view.from, now), parseTime(view.until, now)];
  return { base_from: ms(from - (until - from)), base_until: ms(from) };
}

const ms = (time: number) => String(Math.round(time));

/** What the selection is compared with: another time, other labels, or both. */
export function CompareBar({ view, change }: Props) {
  const [q, setQ] = useState(view.base_q);
  const [problem, setProblem] = useState<string | null>(null);
  if (!isDiff(view)) return null;
  const now = Date.now();
  const [from, until] = [parseTime(view.from, now), parseTime(view.until, now)];
  const [baseFrom, baseUntil] = [parseTime(view.base_from || view.from, now), parseTime(view.base_until || view.until, now)];
  const sameTime = view.base_from === "" && view.base_until === "";
  const apply = (text: string) => {
    try {
      parseSelector(text);
      setProblem(null);
      change({ base_q: text }, true);
    } catch (e) {
      setProblem(e instanceof Error ? e.message : String(e));
    }
  };
  const swap = () => {
    const [base_q, base_from, base_until] = [view.q || "{}", ms(from), ms(until)];
    setQ(base_q);
    change({ q: view.base_q || view.q, from: ms(baseFrom), until: ms(baseUntil), base_q, base_from, base_until }, true);
  };
  return (
    <div class="compare" role="group" aria-label="Compare with" data-testid="compare-bar">
      <span class="muted">Base</span>
      <span data-testid="base-time">{sameTime ? "the same time" : `${formatRange(baseFrom, baseUntil, now)} (${formatSpan(baseUntil - baseFrom)})`}</span>
      <div class="segmented" role="group" aria-label="Time of the base">
        <button type="button" onClick={() => change(before(view), true)}>just before</button>
        {AGO.map(([words, ago]) => (
          <button type="button" key={words} onClick={() => change({ base_from: ms(from - ago), base_until: ms(until - ago) }, true)}>{words}</button>
        ))}
        <button type="button" aria-pressed={sameTime} onClick={() => change({ base_q: view.base_q || view.q || "{}", base_from: "", base_until: "" }, true)}>same time</button>
      </div>
      <form onSubmit={(e) => (e.preventDefault(), apply(q))}>
        <input value={q} onInput={(e) => setQ(e.currentTarget.value)} onBlur={() => q !== view.base_q && apply(q)} spellcheck={false} aria-label="Labels of the base" placeholder={view.q ? `labels of the base: ${printable(view.q)}` : '{version="1.1"}'} />
      </form>
      <button type="button" onClick={swap} title="Base and selection change places" aria-label="Swap base and selection">⇄</button>
      {problem && <span class="bad" role="alert">{problem}</span>}
    </div>
  );
}
