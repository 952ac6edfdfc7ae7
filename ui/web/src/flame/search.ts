import type { Layout } from "./layout.ts";

/** Names that a predicate accepts, one byte a name. */
export function maskNames(names: readonly string[], accept: (name: string) => boolean): Uint8Array {
  const mask = new Uint8Array(names.length);
  for (let i = 0; i < names.length; i++) if (accept(names[i]!)) mask[i] = 1;
  return mask;
}

/** Value under the matched names; a match inside a match is not counted again. */
export function matchedValue(l: Layout, mask: Uint8Array): number {
  const { depth, name } = l.columns;
  let sum = 0;
  let inside = -1;
  for (let i = 0; i < l.count; i++) {
    const d = depth[i]!;
    if (inside >= 0 && d > inside) continue;
    inside = -1;
    if (mask[name[i]!]) {
      sum += l.total[i]!;
      inside = d;
    }
  }
  return sum;
}

/** Matches before each entry of the level arrays, so that a run of boxes is asked in one step. */
export function matchesBefore(l: Layout, mask: Uint8Array): Uint32Array {
  const { name } = l.columns;
  const before = new Uint32Array(l.count + 1);
  for (let k = 0; k < l.count; k++) before[k + 1] = before[k]! + (mask[name[l.levelNode[k]!]!] ? 1 : 0);
  return before;
}
