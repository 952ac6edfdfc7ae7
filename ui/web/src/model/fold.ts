import { ORIGINS, type Origin } from "./origin.ts";
import type { Tree } from "./pltr.ts";
import { Trie, type Derived } from "./trie.ts";

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

/**
 * Takes out the nodes that `isFolded` marks, never the root: their own cost becomes their caller's, their callees become
 * its callees, and siblings that then have one name become one node. Sums stay what they were.
 */
export function foldTree(tree: Tree, isFolded: Uint8Array): Derived {
  const { depth, name, self } = tree.columns;
  const trie = new Trie(tree);
  const open = new Uint32Array(0x10001);
  for (let i = 0; i < depth.length; i++) {
    const d = depth[i]!;
    const above = d === 0 ? -1 : open[d - 1]!;
    const at = d > 0 && isFolded[i] === 1 ? above : trie.at(above, name[i]!, i);
    open[d] = at;
    trie.add(at, self[i]!, tree.base?.[i] ?? 0);
  }
  return trie.finish();
}
