import type { Tree } from "./pltr.ts";
import { Trie, type Derived } from "./trie.ts";

/** One function: who called it, upside down, and what it called. The root of both is the function. */
export interface Sandwich {
  readonly callers: Derived;
  readonly callees: Derived;
}

/**
 * Merges all occurrences of a function. Inside a recursion only the outermost counts, as in the top table, so that the sum
 * of either side is the function's total. A caller's value is what the function costs on its account. `totals` are each node's own
 * value with its callees', `baseTotals` those of the base in a diff.
 */
export function sandwichOf(tree: Tree, of: number, totals: Float64Array, baseTotals: Float64Array | null): Sandwich {
  const { depth, name, self } = tree.columns;
  const [callers, callees] = [new Trie(tree), new Trie(tree)];
  const [root, below] = [callers.at(-1, of, 0), callees.at(-1, of, 0)];
  const path: number[] = [];
  const open: number[] = [];
  /** Depth of the occurrence that the present node is inside of, or −1. */
  let outer = -1;
  for (let i = 0; i < depth.length; i++) {
    const d = depth[i]!;
    path[d] = i;
    if (outer >= 0 && d <= outer) outer = -1;
    if (outer < 0 && name[i] === of) {
      outer = d;
      open[d] = below;
      let at = root;
      // The root of the tree is no function: it calls nobody.
      for (let up = d - 1; up > 0; up--) at = callers.at(at, name[path[up]!]!, path[up]!);
      callers.add(at, totals[i]!, baseTotals?.[i] ?? 0);
    } else if (outer >= 0) {
      open[d] = callees.at(open[d - 1]!, name[i]!, i);
    }
    if (outer >= 0) callees.add(open[d]!, Math.max(0, self[i]!), Math.max(0, tree.base?.[i] ?? 0));
  }
  return { callers: callers.finish(), callees: callees.finish() };
}
