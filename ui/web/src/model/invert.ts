import type { Tree } from "./pltr.ts";
import { Trie, type Derived } from "./trie.ts";

/**
 * The tree upside down: below the root stand the functions that cost something by themselves, and below each its callers.
 * A frame's value is what the function at the top of its branch costs by itself on that way.
 */
export function invertTree(tree: Tree): Derived {
  const { depth, name, self } = tree.columns;
  const trie = new Trie(tree);
  const root = trie.at(-1, name[0] ?? 0, 0);
  const path: number[] = [];
  for (let i = 0; i < depth.length; i++) {
    path[depth[i]!] = i;
    const [now, base] = [Math.max(0, self[i]!), Math.max(0, tree.base?.[i] ?? 0)];
    if (now === 0 && base === 0) continue;
    let at = root;
    for (let up = depth[i]!; up > 0; up--) at = trie.at(at, name[path[up]!]!, path[up]!);
    trie.add(at, now, base);
  }
  return trie.finish();
}
