import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { findKey, followNames, namesTo, nodeKey, type Theme } from "../flame/index.ts";
import { heavyPath, unfold, type Line } from "../model/calltree.ts";
import type { Model } from "../model/model.ts";
import { Cost, Gap, Name, swatch } from "./top.tsx";
import { useVirtual } from "./virtual.ts";

interface Props {
  model: Model;
  theme: Theme;
  zoom: string;
  matched: Uint8Array | null;
  onZoom(key: string): void;
}

/** The flame graph as a table of nested rows: for screen readers, for exact figures, for keyboards. */
export function CallTree({ model, theme, zoom, matched, onZoom }: Props) {
  const { layout } = model;
  const root = useMemo(() => findKey(layout, zoom), [layout, zoom]);
  const [open, setOpen] = useOpen(model, root);
  const lines = useMemo(() => unfold(layout, root, open), [layout, root, open]);
  const { host, first, last, reveal } = useVirtual(lines.length);
  const [active, setActive] = useState(0);
  const at = Math.min(active, lines.length - 1);

  const walk = (to: number) => {
    const next = Math.max(0, Math.min(lines.length - 1, to));
    setActive(next);
    reveal(next);
    requestAnimationFrame(() => host.current?.querySelector<HTMLElement>(`[data-row="${next}"]`)?.focus());
  };
  const toggle = (line: Line) => {
    const next = new Set(open);
    if (!next.delete(line.node)) next.add(line.node);
    setOpen(next);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    const line = lines[at]!;
    const isOpen = open.has(line.node) && line.children > 0;
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 15, PageUp: at - 15, Home: 0, End: lines.length - 1 };
    if (e.key in moves) walk(moves[e.key]!);
    else if (e.key === "ArrowRight") isOpen ? walk(at + 1) : line.children > 0 && toggle(line);
    else if (e.key === "ArrowLeft") isOpen ? toggle(line) : walk(callerLine(lines, at));
    else if (e.key === "Enter") onZoom(nodeKey(layout, line.node));
    else if ((e.key === "0" || e.key === "Escape") && root !== 0) onZoom("");
    else return;
    e.preventDefault();
  };

  return (
    <div class="table-host" ref={host} data-testid="tree" onKeyDown={onKeyDown}>
      <table class="rows" role="treegrid" aria-label="Call tree" aria-rowcount={lines.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            <th scope="col" class="name plain">Call tree, heaviest first</th>
            <th scope="col" class="cost plain">Self</th>
            <th scope="col" class="cost plain">Total</th>
          </tr>
        </thead>
        <tbody>
          <Gap rows={first} />
          {lines.slice(first, last).map((line, i) => (
            <Row
              key={line.node}
              {...{ model, theme, line }}
              index={first + i}
              active={first + i === at}
              isOpen={open.has(line.node)}
              match={matched !== null && matched[model.nameOf(line.node)] === 1}
              onToggle={() => toggle(line)}
              onFocus={() => setActive(first + i)}
            />
          ))}
          <Gap rows={lines.length - last} />
        </tbody>
      </table>
    </div>
  );
}

/** Open nodes; after a refresh the same paths of names are open again. */
function useOpen(model: Model, root: number): [ReadonlySet<number>, (s: ReadonlySet<number>) => void] {
  const [open, setOpen] = useState<ReadonlySet<number>>(() => heavyPath(model.layout, root));
  const before = useRef({ model, root });
  useEffect(() => {
    const old = before.current;
    before.current = { model, root };
    if (old.model === model && old.root === root) return;
    if (old.model === model) return setOpen(new Set([...open, ...heavyPath(model.layout, root)]));
    const moved = [...open].filter((n) => n < old.model.layout.count).map((n) => followNames(model.layout, namesTo(old.model.layout, n), true));
    setOpen(new Set([root, ...moved.filter((n) => n >= 0)]));
  }, [model, root]);
  return [open, setOpen];
}

function callerLine(lines: readonly Line[], at: number): number {
  let i = at;
  while (i > 0 && lines[i]!.level >= lines[at]!.level) i--;
  return i;
}

interface RowProps {
  model: Model;
  theme: Theme;
  line: Line;
  index: number;
  active: boolean;
  isOpen: boolean;
  match: boolean;
  onToggle(): void;
  onFocus(): void;
}

function Row({ model, theme, line, index, active, isOpen, match, onToggle, onFocus }: RowProps) {
  const id = model.nameOf(line.node);
  const colour = swatch(theme, model.hueOfNode[line.node]!);
  return (
    <tr
      role="row"
      class={match ? "hit" : ""}
      aria-rowindex={index + 2}
      aria-level={line.level}
      aria-posinset={line.position}
      aria-setsize={line.siblings}
      aria-expanded={line.children > 0 ? isOpen : undefined}
      tabIndex={active ? 0 : -1}
      data-row={index}
      data-name={model.layout.columns.names[id]}
      onFocus={onFocus}
      onClick={onToggle}
    >
      <td role="gridcell" class="name" title={model.fullName(id)} style={{ paddingLeft: `${8 + Math.min(line.level - 1, 40) * 12}px` }}>
        <span class="line">
          <span class="twist" aria-hidden="true">{line.children === 0 ? "" : isOpen ? "▾" : "▸"}</span>
          <Name model={model} id={id} colour={colour} />
        </span>
      </td>
      <Cost model={model} value={Math.max(0, model.layout.columns.self[line.node]!)} colour={colour} />
      <Cost model={model} value={model.layout.total[line.node]!} colour={colour} />
    </tr>
  );
}
