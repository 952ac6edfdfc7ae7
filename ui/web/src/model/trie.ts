import type { Tree } from "./pltr.ts";

/** A tree made of another, and which node of that each of its nodes was first: what holds for the one holds for the other. */
export interface Derived {
  readonly tree: Tree;
  readonly first: Uint32Array;
}

/** Grows a tree of names in any order: callees of one name under one caller are one node. Node 0 is the root. */
export class Trie {
  private readonly parents: number[] = [];
  private readonly names: number[] = [];
  private readonly firsts: number[] = [];
  private readonly now: number[] = [];
  private readonly base: number[] = [];
  private readonly known = new Map<number, number>();

  constructor(private readonly from: Tree) {}

  /** The node of a name under `parent` (−1: the root); `first` is the node of the other tree that it stands for. */
  at(parent: number, name: number, first: number): number {
    const key = (parent + 1) * this.from.columns.names.length + name;
    const known = this.known.get(key);
    if (known !== undefined) return known;
    const made = this.parents.push(parent) - 1;
    this.known.set(key, made);
    this.names.push(name);
    this.firsts.push(first);
    this.now.push(0);
    this.base.push(0);
    return made;
  }

  /** Adds to a node's own value on both sides. */
  add(node: number, now: number, base: number): void {
    this.now[node]! += now;
    this.base[node]! += base;
  }

  finish(): Derived {
    const order = this.preorder();
    const place = new Uint32Array(order.length);
    const depth = new Uint16Array(order.length);
    order.forEach((at, k) => {
      place[at] = k;
      depth[k] = this.parents[at]! < 0 ? 0 : depth[place[this.parents[at]!]!]! + 1;
    });
    const pick = (column: readonly number[]) => Float64Array.from(order, (at) => column[at]!);
    return {
      tree: {
        meta: this.from.meta,
        columns: { names: this.from.columns.names, depth, name: order.map((at) => this.names[at]!), self: pick(this.now) },
        base: this.from.base && pick(this.base),
      },
      first: order.map((at) => this.firsts[at]!),
    };
  }

  /** Subtrees whole, siblings in the order in which they came. Every parent was made before its children. */
  private preorder(): Uint32Array {
    const count = this.parents.length;
    const [firstChild, nextSibling] = [new Int32Array(count).fill(-1), new Int32Array(count).fill(-1)];
    for (let at = count - 1; at > 0; at--) {
      nextSibling[at] = firstChild[this.parents[at]!]!;
      firstChild[this.parents[at]!] = at;
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
}
