import type { Columns, Layout } from "../flame/index.ts";
import { totalsOf } from "../flame/index.ts";
import type { Tree } from "./pltr.ts";
import { topOf, type Top } from "./top.ts";
import { formatPercent } from "./format.ts";

/** Two-sided 0.001 of the normal distribution; the server's `real` uses the same. */
export const REAL_Z = 3.29;
/** Index of the hue for what did not change, or may be chance. */
export const SAME = 3;

/** A share on both sides, and what to think of the difference. */
export interface Change {
  readonly now: number;
  readonly base: number;
  /** now − base, from −1 to 1. */
  readonly by: number;
  /** In standard errors of the difference of two shares. */
  readonly z: number;
  /** More than chance. */
  readonly real: boolean;
}

/** Both sides of a tree of version 2. */
export class Diff {
  readonly now: Float64Array;
  readonly base: Float64Array;
  readonly nowTop: Top;
  readonly baseTop: Top;
  readonly hueOfNode: Uint8Array;
  private readonly events: readonly [number, number];
  /** What is 100 % on both sides. */
  private readonly totals: readonly [number, number];

  /** Shares are those of `of`, where the tree is a part of another. */
  constructor(tree: Tree, layout: Layout, of: Diff | null = null) {
    const { depth, self } = tree.columns;
    this.now = totalsOf(depth, self, layout.levels);
    this.base = totalsOf(depth, tree.base!, layout.levels);
    this.nowTop = topOf({ ...layout, total: this.now, columns: tree.columns });
    this.baseTop = topOf({ ...layout, total: this.base, columns: { ...tree.columns, self: tree.base! } });
    this.totals = of?.totals ?? [this.now[0] ?? 0, this.base[0] ?? 0];
    const { meta } = tree;
    this.events = [meta.events ?? meta.samples, meta.base_events ?? meta.base_samples ?? 0];
    this.hueOfNode = Uint8Array.from(this.now, (_, node) => hueOf(this.ofNode(node)));
  }

  ofNode(node: number): Change {
    return this.change(this.now[node]!, this.base[node]!);
  }

  /** Of a function, wherever it was called. */
  ofName(name: number): Change {
    return this.change(this.nowTop.total[name]!, this.baseTop.total[name]!);
  }

  get isSure(): boolean {
    return this.events.every((n) => n >= 30);
  }

  private change(now: number, base: number): Change {
    const [p, q] = [share(now, this.totals[0]), share(base, this.totals[1])];
    const z = score(p, q, this.events);
    return { now: p, base: q, by: p - q, z, real: Math.abs(z) >= REAL_Z };
  }
}

/** Widths for a graph of both sides: the mean of both shares, so that what is gone is still seen. */
export function bothSides(tree: Tree): Columns {
  const { self } = tree.columns;
  const base = tree.base!;
  const sum = (column: Float64Array) => column.reduce((a, b) => a + Math.max(0, b), 0);
  const [now, then] = [sum(self), sum(base)];
  // In units of the selection, so that the root is its total; of the base where there is none.
  const whole = now || then || 1;
  const weigh = (value: number, of: number) => (of > 0 ? (Math.max(0, value) / of) * whole : 0);
  const sides = (now > 0 ? 1 : 0) + (then > 0 ? 1 : 0) || 1;
  return { ...tree.columns, self: self.map((value, i) => (weigh(value, now) + weigh(base[i]!, then)) / sides) };
}

function share(value: number, total: number): number {
  return total > 0 ? value / total : 0;
}

/** √(p(1−p)(1/n + 1/m)) of the pooled share, as the server computes it. */
export function score(p: number, q: number, [n, m]: readonly [number, number]): number {
  if (n <= 0 || m <= 0 || p === q) return 0;
  const pooled = (p * n + q * m) / (n + m);
  const error = Math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m));
  return error > 0 ? (p - q) / error : 0;
}

/** 0 much less … 3 the same or chance … 6 much more. */
export function hueOf(c: Change): number {
  if (!c.real) return SAME;
  const size = Math.abs(c.by);
  const step = size >= 0.05 ? 3 : size >= 0.01 ? 2 : 1;
  return c.by > 0 ? SAME + step : SAME - step;
}

/** `+2.8 points`, `−0.04 points`. */
export function formatPoints(by: number): string {
  const points = Math.abs(100 * by);
  const digits = points >= 9.95 ? 0 : points >= 0.995 ? 1 : points >= 0.0995 ? 2 : 3;
  return `${by > 0 ? "+" : by < 0 ? "−" : "±"}${points.toFixed(by === 0 ? 0 : digits)}`;
}

/** `12.3 % → 15.1 % (+2.8)`. */
export function formatChange(c: Change): string {
  return `${formatPercent(c.base, 1)} → ${formatPercent(c.now, 1)} (${formatPoints(c.by)})`;
}

/** Whether to believe it, in words. */
export function verdict(c: Change): string {
  if (c.by === 0) return "the same on both sides";
  const sigma = `${Math.abs(c.z).toFixed(1)} standard errors`;
  return c.real ? `more than chance (${sigma})` : `may be chance (${sigma})`;
}

export type DiffKey = "change" | "now" | "base" | "name";

/** Names in the order of the table: the largest change first, those that may be chance behind the real ones. */
export function orderDiff(d: Diff, names: readonly string[], rootName: number, key: DiffKey, reversed: boolean, keep: Uint8Array | null, onlyReal: boolean): Uint32Array {
  const rows: { id: number; c: Change }[] = [];
  for (let id = 0; id < names.length; id++) {
    if (id === rootName || (keep !== null && keep[id] !== 1)) continue;
    if (!(d.nowTop.total[id]! > 0) && !(d.baseTop.total[id]! > 0)) continue;
    const c = d.ofName(id);
    if (!onlyReal || c.real) rows.push({ id, c });
  }
  const by: Record<DiffKey, (a: { id: number; c: Change }, b: { id: number; c: Change }) => number> = {
    change: (a, b) => Number(b.c.real) - Number(a.c.real) || Math.abs(b.c.by) - Math.abs(a.c.by),
    now: (a, b) => b.c.now - a.c.now,
    base: (a, b) => b.c.base - a.c.base,
    name: (a, b) => (names[a.id]! < names[b.id]! ? -1 : 1),
  };
  const sign = reversed ? -1 : 1;
  rows.sort((a, b) => sign * by[key](a, b) || a.id - b.id);
  return Uint32Array.from(rows, (r) => r.id);
}
