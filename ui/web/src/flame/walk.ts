import { childEntries, entryOf, subtreeEnd, type Layout } from "./layout.ts";

/** The child with the largest total, or -1. */
export function heaviestChild(l: Layout, node: number): number {
  const [from, to] = childEntries(l, node);
  let best = -1;
  for (let k = from; k < to; k++) {
    const child = l.levelNode[k]!;
    if (best < 0 || l.total[child]! > l.total[best]!) best = child;
  }
  return best;
}

/** Next node on the same level inside a value range, skipping boxes without width; -1 at the end. */
export function neighbour(l: Layout, node: number, step: 1 | -1, from: number, to: number): number {
  const level = l.columns.depth[node]!;
  let k = entryOf(l, node) + step;
  while (k >= l.levelOffset[level]! && k < l.levelOffset[level + 1]!) {
    if (l.levelEnd[k]! <= from || l.levelStart[k]! >= to) return -1;
    if (l.levelEnd[k]! > l.levelStart[k]!) return l.levelNode[k]!;
    k += step;
  }
  return -1;
}

/** Next or previous matched node in preorder, round the end; -1 when there is none. */
export function nextMatch(l: Layout, matched: Uint8Array, node: number, step: 1 | -1): number {
  for (let i = 1; i <= l.count; i++) {
    const at = (node + step * i + l.count) % l.count;
    if (matched[l.columns.name[at]!] && l.total[at]! > 0) return at;
  }
  return -1;
}

/** The matched node with the largest total in the subtree of `root`, or -1. */
export function heaviestMatch(l: Layout, matched: Uint8Array, root: number): number {
  const end = subtreeEnd(l, root);
  let best = -1;
  for (let i = root; i < end; i++) {
    if (matched[l.columns.name[i]!] && (best < 0 || l.total[i]! > l.total[best]!)) best = i;
  }
  return best;
}
