import type { Columns } from "../flame/index.ts";
import type { Tree } from "./pltr.ts";
import { ORIGINS, type Origin } from "./origin.ts";

/** Origins that may be folded: the program's own code is what folding is there to show. */
export const FOLDABLE: readonly Origin[] = ORIGINS.filter((origin) => origin !== "app");

/** Origins as a link carries them, by their place in `ORIGINS`. */
export function parseFold(text: string): ReadonlySet<number> {
  const given = text.split(",");
  return new Set(FOLDABLE.filter((origin) => given.includes(origin)).map((origin) => ORIGINS.indexOf(origin)));
}

/** The link's text with one origin more, or one less. */
export function toggleFold(text: string, origin: Origin): string {
  const given = text.split(",");
  return FOLDABLE.filter((o) => given.includes(o) !== (o === origin)).join(",");
}

/** A tree without some of its frames, and which node of the whole tree each of its nodes was first. */
export interface Folded {
  readonly tree: Tree;
  readonly first: Uint32Array;
}

/**
 * Takes out the nodes that `isFolded` marks, never the root: their own cost becomes their caller's, their callees become
 * its callees, and siblings that then have one name become one node. Sums stay what they were.
 */
export function foldTree(tree: Tree, isFolded: Uint8Array): Folded {
  const { depth, name, names } = tree.columns;
  const count = depth.length;
  // Nodes of the folded tree in the order of their first appearance.
  const [parent, nameOf, first] = [new Int32Array(count), new Uint32Array(count), new Uint32Array(count)];
  const into = new Uint32Array(count);
  const known = new Map<number, number>();
  const open = new Uint32Array(0x10001);
  let made = 0;
  for (let i = 0; i < count; i++) {
    const d = depth[i]!;
    const above = d === 0 ? -1 : open[d - 1]!;
    if (d > 0 && isFolded[i] === 1) {
      open[d] = into[i] = above;
      continue;
    }
    const key = (above + 1) * names.length + name[i]!;
    let at = known.get(key);
    if (at === undefined) {
      at = made++;
      known.set(key, at);
      [parent[at], nameOf[at], first[at]] = [above, name[i]!, i];
    }
    open[d] = into[i] = at;
  }
  const order = preorder(parent.subarray(0, made));
  const place = new Uint32Array(made);
  const newDepth = new Uint16Array(made);
  order.forEach((at, k) => {
    place[at] = k;
    newDepth[k] = parent[at]! < 0 ? 0 : newDepth[place[parent[at]!]!]! + 1;
  });
  const sums = (column: Float64Array) => {
    const out = new Float64Array(made);
    for (let i = 0; i < count; i++) out[place[into[i]!]!]! += column[i]!;
    return out;
  };
  const columns: Columns = { names, depth: newDepth, name: order.map((at) => nameOf[at]!), self: sums(tree.columns.self) };
  return { tree: { meta: tree.meta, columns, base: tree.base && sums(tree.base) }, first: order.map((at) => first[at]!) };
}

/** Nodes with callers before callees and subtrees whole; siblings keep their order. Every parent stands before its children. */
function preorder(parent: Int32Array): Uint32Array {
  const count = parent.length;
  const [firstChild, nextSibling] = [new Int32Array(count).fill(-1), new Int32Array(count).fill(-1)];
  for (let at = count - 1; at > 0; at--) {
    nextSibling[at] = firstChild[parent[at]!]!;
    firstChild[parent[at]!] = at;
  }
  const out = new Uint32Array(count);
  const stack = count > 0 ? [0] : [];
  for (let k = 0; stack.length > 0; k++) {
    const at = stack.pop()!;
    out[k] = at;
    if (nextSibling[at]! >= 0) stack.push(nextSibling[at]!);
    if (firstChild[at]! >= 0) stack.push(firstChild[at]!);
  }
  return out;
}
