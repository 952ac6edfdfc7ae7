import type { Layout } from "../flame/index.ts";

/** Own and inclusive value of each name. */
export interface Top {
  readonly self: Float64Array;
  readonly total: Float64Array;
}

/** Sums a tree by name; inside a recursion the total is counted once, as pprof does. */
export function topOf(l: Layout): Top {
  const { names, depth, name, self } = l.columns;
  const top = { self: new Float64Array(names.length), total: new Float64Array(names.length) };
  const open = new Uint16Array(names.length);
  const stack = new Uint32Array(l.levels);
  let height = 0;
  for (let i = 0; i < l.count; i++) {
    const d = depth[i]!;
    while (height > d) open[stack[--height]!]!--;
    const id = name[i]!;
    if (open[id]!++ === 0) top.total[id]! += l.total[i]!;
    top.self[id]! += Math.max(0, self[i]!);
    stack[height++] = id;
  }
  return top;
}

export type SortKey = "self" | "total" | "name";

/** A column and a direction: `self` is the heaviest first, `-self` the lightest. */
export interface Sort {
  readonly key: SortKey;
  readonly reversed: boolean;
}

export function parseSort(text: string): Sort {
  const reversed = text.startsWith("-");
  const key = reversed ? text.slice(1) : text;
  return { key: key === "total" || key === "name" ? key : "self", reversed };
}

export function formatSort(s: Sort): string {
  return (s.reversed ? "-" : "") + s.key;
}

/** Name ids in the order of the table. The root's name is left out; `keep` filters. */
export function orderTop(top: Top, names: readonly string[], rootName: number, sort: Sort, keep: Uint8Array | null): Uint32Array {
  const ids: number[] = [];
  for (let i = 0; i < names.length; i++) {
    if (i !== rootName && top.total[i]! > 0 && (keep === null || keep[i] === 1)) ids.push(i);
  }
  const sign = sort.reversed ? -1 : 1;
  if (sort.key === "name") ids.sort((a, b) => sign * (names[a]! < names[b]! ? -1 : 1));
  else {
    const [first, second] = sort.key === "self" ? [top.self, top.total] : [top.total, top.self];
    ids.sort((a, b) => sign * (first[b]! - first[a]! || second[b]! - second[a]! || a - b));
  }
  return Uint32Array.from(ids);
}
