import { childEntries, type Layout } from "../flame/index.ts";

/** A line of the call tree as it is unfolded at present. */
export interface Line {
  readonly node: number;
  readonly level: number;
  readonly children: number;
  readonly position: number;
  readonly siblings: number;
}

/** Children of a node, the heaviest first; those without value are left out. */
export function heavyChildren(l: Layout, node: number): number[] {
  const [from, to] = childEntries(l, node);
  const out: number[] = [];
  for (let k = from; k < to; k++) if (l.total[l.levelNode[k]!]! > 0) out.push(l.levelNode[k]!);
  return out.sort((a, b) => l.total[b]! - l.total[a]! || a - b);
}

/** Lines in sight: the children of each open node, from `root` down. */
export function unfold(l: Layout, root: number, open: ReadonlySet<number>): Line[] {
  const lines: Line[] = [];
  const stack: Line[] = [{ node: root, level: 1, children: childCount(l, root), position: 1, siblings: 1 }];
  while (stack.length > 0) {
    const line = stack.pop()!;
    lines.push(line);
    if (!open.has(line.node)) continue;
    const children = heavyChildren(l, line.node);
    for (let i = children.length - 1; i >= 0; i--) {
      stack.push({ node: children[i]!, level: line.level + 1, children: childCount(l, children[i]!), position: i + 1, siblings: children.length });
    }
  }
  return lines;
}

function childCount(l: Layout, node: number): number {
  const [from, to] = childEntries(l, node);
  return to - from;
}

/** Nodes to open at first: from `root` along the heaviest callees, as long as they hold half of their caller. */
export function heavyPath(l: Layout, root: number): Set<number> {
  const open = new Set<number>([root]);
  let at = root;
  for (let i = 0; i < 60; i++) {
    const heaviest = heavyChildren(l, at)[0];
    if (heaviest === undefined || l.total[heaviest]! < l.total[at]! / 2) break;
    open.add(heaviest);
    at = heaviest;
  }
  return open;
}
