import { useEffect, useMemo, useState } from "preact/hooks";
import { css, shade, type Theme } from "../flame/index.ts";
import type { Model } from "../model/model.ts";
import { formatSort, orderTop, type Sort, type SortKey } from "../model/top.ts";
import { ROW_HEIGHT, useVirtual } from "./virtual.ts";

interface Props {
  model: Model;
  theme: Theme;
  sort: Sort;
  /** Names that pass the search, or null. */
  keep: Uint8Array | null;
  selected: string | null;
  onSort(sort: string): void;
  onSelect(name: string): void;
}

/** Functions with own and inclusive cost. */
export function TopTable({ model, theme, sort, keep, selected, onSort, onSelect }: Props) {
  const { names } = model.layout.columns;
  const order = useMemo(() => orderTop(model.top, names, model.rootName, sort, keep), [model, sort.key, sort.reversed, keep]);
  const { host, first, last, reveal } = useVirtual(order.length);
  const [active, setActive] = useState(0);
  useEffect(() => setActive((a) => Math.min(a, Math.max(0, order.length - 1))), [order]);

  const walk = (to: number) => {
    const next = Math.max(0, Math.min(order.length - 1, to));
    setActive(next);
    reveal(next);
    requestAnimationFrame(() => host.current?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus());
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.target instanceof HTMLButtonElement) return;
    const moves: Record<string, number> = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + 15, PageUp: active - 15, Home: 0, End: order.length - 1 };
    if (e.key in moves) walk(moves[e.key]!);
    else if (e.key === "Enter" || e.key === " ") onSelect(names[order[active]!]!);
    else return;
    e.preventDefault();
  };

  return (
    <div class="table-host" ref={host} data-testid="top" onKeyDown={onKeyDown}>
      <table class="rows" role="grid" aria-label="Functions by cost" aria-rowcount={order.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <Heading label="Function" column="name" sort={sort} onSort={onSort} />
            <Heading label="Self" column="self" sort={sort} onSort={onSort} />
            <Heading label="Total" column="total" sort={sort} onSort={onSort} />
          </tr>
        </thead>
        <tbody>
          <Gap rows={first} />
          {Array.from(order.subarray(first, last), (id, i) => {
            const index = first + i;
            const name = names[id]!;
            return (
              <tr
                key={id}
                role="row"
                class={name === selected ? "selected" : ""}
                aria-rowindex={index + 2}
                aria-selected={name === selected}
                tabIndex={index === active ? 0 : -1}
                data-row={index}
                data-name={name}
                data-self={model.top.self[id]}
                data-total={model.top.total[id]}
                onFocus={() => setActive(index)}
                onClick={() => onSelect(name)}
              >
                <td role="gridcell" class="name" title={model.fullName(id)}>
                  <Name model={model} id={id} colour={swatch(theme, model.hueOf[id]!)} />
                </td>
                <Cost model={model} value={model.top.self[id]!} colour={swatch(theme, model.hueOf[id]!)} />
                <Cost model={model} value={model.top.total[id]!} colour={swatch(theme, model.hueOf[id]!)} />
              </tr>
            );
          })}
          <Gap rows={order.length - last} />
        </tbody>
      </table>
      {order.length === 0 && <p class="table-note">No function matches the search.</p>}
    </div>
  );
}

export function swatch(theme: Theme, hue: number): string {
  return css(shade(theme.hues[hue]!, 5, theme.dark));
}

/** Swatch, path and function: when room is short the path gives way, the function stays. */
export function Name({ model, id, colour }: { model: Model; id: number; colour: string }) {
  const [path, own] = model.splitName(id);
  return (
    <span class="fn">
      <span class="swatch" style={{ background: colour }} />
      {path && <span class="fn-path">{path}</span>}
      <span class="fn-own">{own}</span>
    </span>
  );
}

/** Value, percent, and a bar of that percent behind them. */
export function Cost({ model, value, colour }: { model: Model; value: number; colour: string }) {
  const share = model.total > 0 ? Math.min(1, value / model.total) : 0;
  if (value === 0) return <td role="gridcell" class="cost zero">0</td>;
  return (
    <td role="gridcell" class="cost">
      <span class="bar" style={{ width: `${100 * share}%`, background: colour }} />
      <span class="value">{model.value(value)}</span>
      <span class="percent">{model.percent(value)}</span>
    </td>
  );
}

export function Gap({ rows }: { rows: number }) {
  return rows > 0 ? <tr aria-hidden="true" class="gap" style={{ height: `${rows * ROW_HEIGHT}px` }} /> : null;
}

function Heading({ label, column, sort, onSort }: { label: string; column: SortKey; sort: Sort; onSort(s: string): void }) {
  const on = sort.key === column;
  const rising = column === "name" ? !sort.reversed : sort.reversed;
  return (
    <th scope="col" class={column === "name" ? "name" : "cost"} aria-sort={on ? (rising ? "ascending" : "descending") : "none"}>
      <button type="button" onClick={() => onSort(formatSort({ key: column, reversed: on && !sort.reversed }))}>
        {label}
        <span class="arrow" aria-hidden="true">{on ? (rising ? "▲" : "▼") : ""}</span>
      </button>
    </th>
  );
}
