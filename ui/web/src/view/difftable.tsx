import { useMemo, useState } from "preact/hooks";
import type { Theme } from "../flame/index.ts";
import { formatPoints, hueOf, orderDiff, verdict, type DiffKey } from "../model/diff.ts";
import { formatPercent } from "../model/format.ts";
import type { Model } from "../model/model.ts";
import { Gap, Name, swatch } from "./top.tsx";
import { useVirtual } from "./virtual.ts";

interface Props {
  model: Model;
  theme: Theme;
  /** Names that pass the search, or null. */
  keep: Uint8Array | null;
  selected: string | null;
  onSelect(name: string): void;
}

const COLUMNS: readonly (readonly [DiffKey, string])[] = [["name", "Function"], ["base", "Base"], ["now", "Now"], ["change", "Change"]];

/** Functions by change of their share of the total; what may be chance is grey and stands behind. */
export function DiffTable({ model, theme, keep, selected, onSelect }: Props) {
  const diff = model.diff!;
  const { names } = model.layout.columns;
  const [sort, setSort] = useState<readonly [DiffKey, boolean]>(["change", false]);
  const [onlyReal, setOnlyReal] = useState(false);
  const order = useMemo(() => orderDiff(diff, names, model.rootName, sort[0], sort[1], keep, onlyReal), [model, sort, keep, onlyReal]);
  const { host, first, last, reveal } = useVirtual(order.length);
  const [active, setActive] = useState(0);
  const walk = (to: number) => {
    const next = Math.max(0, Math.min(order.length - 1, to));
    setActive(next);
    reveal(next);
    requestAnimationFrame(() => host.current?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus());
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.target instanceof HTMLButtonElement || e.target instanceof HTMLInputElement) return;
    const moves: Record<string, number> = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + 15, PageUp: active - 15, Home: 0, End: order.length - 1 };
    if (e.key in moves) walk(moves[e.key]!);
    else if (e.key === "Enter" || e.key === " ") onSelect(names[order[active]!]!);
    else return;
    e.preventDefault();
  };
  return (
    <div class="table-host" ref={host} data-testid="difftop" onKeyDown={onKeyDown}>
      <label class="only-real">
        <input type="checkbox" checked={onlyReal} onChange={(e) => setOnlyReal(e.currentTarget.checked)} />
        Only what is more than chance
      </label>
      <table class="rows diff" role="grid" aria-label="Functions by change of share" aria-rowcount={order.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {COLUMNS.map(([key, label]) => {
              const on = sort[0] === key;
              const rising = key === "name" ? !sort[1] : sort[1];
              return (
                <th scope="col" key={key} class={key === "name" ? "name" : "cost"} aria-sort={on ? (rising ? "ascending" : "descending") : "none"}>
                  <button type="button" onClick={() => setSort([key, on && !sort[1]])}>
                    {label}<span class="arrow" aria-hidden="true">{on ? (rising ? "▲" : "▼") : ""}</span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          <Gap rows={first} />
          {Array.from(order.subarray(first, last), (id, i) => {
            const index = first + i;
            const name = names[id]!;
            const c = diff.ofName(id);
            return (
              <tr
                key={id}
                role="row"
                class={`${name === selected ? "selected" : ""}${c.real ? " real" : " chance"}`}
                aria-rowindex={index + 2}
                aria-selected={name === selected}
                tabIndex={index === active ? 0 : -1}
                data-row={index}
                data-name={name}
                data-change={c.by}
                data-real={c.real}
                onFocus={() => setActive(index)}
                onClick={() => onSelect(name)}
                title={verdict(c)}
              >
                <td role="gridcell" class="name" title={model.fullName(id)}><Name model={model} id={id} colour={swatch(theme, hueOf(c))} /></td>
                <td role="gridcell" class="cost">{formatPercent(c.base, 1)}</td>
                <td role="gridcell" class="cost">{formatPercent(c.now, 1)}</td>
                <td role="gridcell" class="cost change">{formatPoints(c.by)}<span class="mark">{c.real ? "" : " ≈"}</span></td>
              </tr>
            );
          })}
          <Gap rows={order.length - last} />
        </tbody>
      </table>
      {order.length === 0 && <p class="table-note">{onlyReal ? "No change is more than chance." : "No function matches the search."}</p>}
    </div>
  );
}

const STEPS = ["−5 and more", "−1 to −5", "below −1", "the same, or chance", "below +1", "+1 to +5", "+5 and more"];

/** What the colours of a diff mean, in points of share, and how sure they are. */
export function DiffLegend({ model, theme }: { model: Model; theme: Theme }) {
  return (
    <div class="legend diff-legend" role="group" aria-label="Colours of the comparison" tabIndex={0} data-testid="diff-legend">
      {STEPS.map((words, hue) => (
        <span class="origin" key={words}><span class="swatch" style={{ backgroundColor: swatch(theme, hue) }} />{words}</span>
      ))}
      <span class="muted">{model.diff!.isSure ? "percent points of the total" : "too few samples on one side to judge"}</span>
    </div>
  );
}
