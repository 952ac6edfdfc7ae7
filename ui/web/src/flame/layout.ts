/** What a flame graph is drawn from: a tree in preorder, one entry a node in each column. */
export interface Columns {
  readonly names: readonly string[];
  /** Node 0 is the root with depth 0; a child is one deeper than its parent. */
  readonly depth: Uint16Array;
  /** Index into `names`. */
  readonly name: Uint32Array;
  /** Own value of a node, without its children. */
  readonly self: Float64Array;
}

/** Positions of all boxes, as arrays per level (compressed sparse rows) in left-to-right order. */
export interface Layout {
  readonly columns: Columns;
  readonly count: number;
  readonly levels: number;
  /** Own value plus children, in preorder. */
  readonly total: Float64Array;
  /** Level d is the range [levelOffset[d], levelOffset[d + 1]) of the level arrays. */
  readonly levelOffset: Uint32Array;
  /** Preorder index of a node, ascending within a level. */
  readonly levelNode: Uint32Array;
  /** Left and right edge in value units; the root spans [0, total]. */
  readonly levelStart: Float64Array;
  readonly levelEnd: Float64Array;
  /** Sum of the widths before an entry, over all levels: tells how full a run of boxes is. */
  readonly levelFill: Float64Array;
}

/** Lays out a tree in two linear passes; negative own values count as 0. */
export function layout(columns: Columns): Layout {
  const { depth, self } = columns;
  const count = depth.length;
  let levels = 0;
  for (let i = 0; i < count; i++) if (depth[i]! >= levels) levels = depth[i]! + 1;
  const total = totalsOf(depth, self, levels);
  const levelOffset = new Uint32Array(levels + 1);
  for (let i = 0; i < count; i++) levelOffset[depth[i]! + 1]!++;
  for (let d = 0; d < levels; d++) levelOffset[d + 1]! += levelOffset[d]!;
  const levelNode = new Uint32Array(count);
  const levelStart = new Float64Array(count);
  const levelEnd = new Float64Array(count);
  const slot = levelOffset.slice(0, levels);
  const next = new Float64Array(levels + 1);
  for (let i = 0; i < count; i++) {
    const d = depth[i]!;
    const at = slot[d]!++;
    const left = next[d]!;
    const right = left + total[i]!;
    levelNode[at] = i;
    levelStart[at] = left;
    levelEnd[at] = right;
    next[d] = right;
    next[d + 1] = left;
  }
  const levelFill = new Float64Array(count + 1);
  for (let k = 0; k < count; k++) levelFill[k + 1] = levelFill[k]! + levelEnd[k]! - levelStart[k]!;
  return { columns, count, levels, total, levelOffset, levelNode, levelStart, levelEnd, levelFill };
}

/** Own value plus children of each node; negative own values count as 0. */
export function totalsOf(depth: Uint16Array, self: Float64Array, levels: number): Float64Array {
  const total = new Float64Array(depth.length);
  const open = new Float64Array(levels + 1);
  for (let i = depth.length - 1; i >= 0; i--) {
    const d = depth[i]!;
    const own = self[i]!;
    const sum = (own > 0 ? own : 0) + open[d + 1]!;
    open[d + 1] = 0;
    open[d]! += sum;
    total[i] = sum;
  }
  return total;
}

/** First entry of a level whose right edge is beyond `value`, or the level's end. */
export function firstEndingAfter(l: Layout, level: number, value: number): number {
  let lo = l.levelOffset[level]!;
  let hi = l.levelOffset[level + 1]!;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (l.levelEnd[mid]! > value) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

/** The entry of a level that covers `value`, or -1. */
export function entryAt(l: Layout, level: number, value: number): number {
  if (level < 0 || level >= l.levels) return -1;
  const at = firstEndingAfter(l, level, value);
  return at < l.levelOffset[level + 1]! && l.levelStart[at]! <= value ? at : -1;
}

/** Place of a node (preorder index) in the level arrays. */
export function entryOf(l: Layout, node: number): number {
  const d = l.columns.depth[node]!;
  return lastNotAfter(l, d, node);
}

/** Preorder index of the parent; the root's parent is -1. */
export function parentOf(l: Layout, node: number): number {
  const d = l.columns.depth[node]!;
  return d === 0 ? -1 : l.levelNode[lastNotAfter(l, d - 1, node)]!;
}

function lastNotAfter(l: Layout, level: number, node: number): number {
  let lo = l.levelOffset[level]!;
  let hi = l.levelOffset[level + 1]!;
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (l.levelNode[mid]! > node) hi = mid;
    else lo = mid + 1;
  }
  return lo - 1;
}

/** Children of a node as a range of the level arrays. */
export function childEntries(l: Layout, node: number): [number, number] {
  const d = l.columns.depth[node]! + 1;
  if (d >= l.levels) return [0, 0];
  const from = lastNotAfter(l, d, node) + 1;
  let to = from;
  const end = l.levelOffset[d + 1]!;
  const stop = subtreeEnd(l, node);
  while (to < end && l.levelNode[to]! < stop) to++;
  return [from, to];
}

/** First preorder index behind the subtree of `node`. */
export function subtreeEnd(l: Layout, node: number): number {
  // The next node that is not deeper stands on this level or on one above: take the nearest.
  let stop = l.count;
  for (let d = l.columns.depth[node]!; d >= 0; d--) {
    const at = lastNotAfter(l, d, node) + 1;
    if (at < l.levelOffset[d + 1]!) stop = Math.min(stop, l.levelNode[at]!);
  }
  return stop;
}

/** Nodes from the root to `node`, both included. */
export function pathTo(l: Layout, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at >= 0; at = parentOf(l, at)) path.push(at);
  return path.reverse();
}

/** Deepest level inside the subtree of `node`. */
export function deepestLevel(l: Layout, node: number): number {
  const { depth } = l.columns;
  let deepest = depth[node]!;
  const end = subtreeEnd(l, node);
  for (let i = node + 1; i < end; i++) if (depth[i]! > deepest) deepest = depth[i]!;
  return deepest;
}
