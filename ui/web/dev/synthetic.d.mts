/** Types of synthetic.mjs for the unit tests. */
export interface Synthetic {
  names: string[];
  depth: number[];
  name: number[];
  self: number[];
}
export const HOT: string;
export const HOT_SHARE: number;
export function checkout(): Synthetic;
export function hostile(): Synthetic;
export function zipf(nodes: number, seed?: number): { names: string[]; depth: Uint16Array; name: Uint32Array; self: Float64Array };
export function totalOf(tree: { self: ArrayLike<number> }): number;
export function encode(tree: Synthetic, meta: object): Buffer;
