import { pathTo, childEntries, type Layout } from "./layout.ts";

/** A node named so that it is found again in another tree of the same program. */
export function nodeKey(l: Layout, node: number): string {
  const { names, name, depth } = l.columns;
  if (node <= 0) return "";
  const own = names[name[node]!]!;
  if (heaviestOf(l, own) === node) return own;
  return `${own}@${depth[node]}.${pathHash(l, node)}`;
}

/** The node of a key: the exact path if it is there, else the heaviest node of that name, else the root. */
export function findKey(l: Layout, key: string): number {
  if (key === "") return 0;
  const exact = /^(.*)@(\d+)\.([0-9a-f]{8})$/s.exec(key);
  if (exact) {
    const found = exactNode(l, exact[1]!, Number(exact[2]), exact[3]!);
    if (found > 0) return found;
  }
  const byName = heaviestOf(l, exact ? exact[1]! : key);
  return byName > 0 ? byName : 0;
}

function exactNode(l: Layout, own: string, level: number, hash: string): number {
  const { names, name } = l.columns;
  if (level >= l.levels) return -1;
  for (let k = l.levelOffset[level]!; k < l.levelOffset[level + 1]!; k++) {
    const node = l.levelNode[k]!;
    if (names[name[node]!] === own && pathHash(l, node) === hash) return node;
  }
  return -1;
}

/** The heaviest node of a name (the first of equals), or -1. */
export function heaviestOf(l: Layout, own: string): number {
  const { names, name } = l.columns;
  const id = names.indexOf(own);
  if (id < 0) return -1;
  let best = -1;
  for (let i = 0; i < l.count; i++) {
    if (name[i] === id && (best < 0 || l.total[i]! > l.total[best]!)) best = i;
  }
  return best;
}

/** 32-bit FNV-1a over the names of the path, as 8 hex digits. */
export function pathHash(l: Layout, node: number): string {
  const { names, name } = l.columns;
  let hash = 0x811c9dc5;
  for (const at of pathTo(l, node)) {
    for (const c of names[name[at]!]!) hash = Math.imul(hash ^ c.codePointAt(0)!, 0x01000193);
    hash = Math.imul(hash ^ 0x2f, 0x01000193);
  }
  return (hash >>> 0).toString(16).padStart(8, "0");
}

/** The names from the root's child to a node. */
export function namesTo(l: Layout, node: number): string[] {
  const { names, name } = l.columns;
  return pathTo(l, node).slice(1).map((at) => names[name[at]!]!);
}

/** Follows names from the root as far as they exist; the whole path or nothing when `whole`. */
export function followNames(l: Layout, path: readonly string[], whole: boolean): number {
  const { names, name } = l.columns;
  let at = 0;
  for (const want of path) {
    const [from, to] = childEntries(l, at);
    let found = -1;
    for (let k = from; k < to && found < 0; k++) {
      const child = l.levelNode[k]!;
      if (names[name[child]!] === want) found = child;
    }
    if (found < 0) return whole ? -1 : at;
    at = found;
  }
  return at;
}
