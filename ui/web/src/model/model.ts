import { layout, type Layout } from "../flame/index.ts";
import { classify, markKernel, ORIGINS, sharesByOrigin, spread, type Origin } from "./origin.ts";
import { lastPart, printable, shorten, spellings } from "./names.ts";
import { topOf, type Top } from "./top.ts";
import type { Meta, Tree } from "./pltr.ts";
import { collapsed } from "./collapsed.ts";
import { bothSides, Diff, formatChange } from "./diff.ts";
import { foldTree } from "./fold.ts";
import { invertTree } from "./invert.ts";
import { sandwichOf } from "./sandwich.ts";
import type { Derived } from "./trie.ts";
import { formatPercent, formatValue } from "./format.ts";

/** The server's frame for what it keeps only totals of. */
const SAMPLED_OUT = "[stacks left out by a sampling rule]";
/** Hue of the root, behind those of the origins. */
export const ROOT_HUE = ORIGINS.length;

/** What was loaded, before anything is derived from it. */
interface Whole {
  readonly tree: Tree;
  readonly rootName: number;
  /** Origin of each name and of each node. */
  readonly ofName: Uint8Array;
  readonly ofNode: Uint8Array;
}

/** A tree made ready for all views. What costs time is computed when it is first asked for. */
export class Model {
  readonly meta: Meta;
  readonly layout: Layout;
  /** Hue of each name, for tables. */
  readonly hueOf: Uint8Array;
  /** Hue of each node, for the graph. */
  readonly hueOfNode: Uint8Array;
  /** Both sides, in a diff; the layout then holds the mean of both shares. */
  readonly diff: Diff | null;
  readonly rootName: number;
  private spelled: (readonly string[] | undefined)[];
  private topOnce: Top | null = null;
  private shares: number[] | null = null;

  private constructor(
    private readonly whole: Whole,
    private readonly tree: Tree,
    /** Origin of each node of `tree`. */
    private readonly origins: Uint8Array,
    readonly fileOf: ReadonlyMap<string, string>,
    /** The model whose total is 100 %, if it is another. */
    private readonly of: Model | null,
  ) {
    this.meta = tree.meta;
    this.rootName = whole.rootName;
    this.hueOf = whole.ofName;
    this.layout = layout(tree.base ? bothSides(tree) : tree.columns);
    this.diff = tree.base ? new Diff(tree, this.layout, of?.diff ?? null) : null;
    this.hueOfNode = this.diff?.hueOfNode ?? origins;
    this.spelled = new Array(tree.columns.names.length);
  }

  /** `services` are hints which crates are the program's own, `fileOf` the source files of names. */
  static of(tree: Tree, services: readonly string[], fileOf: ReadonlyMap<string, string>): Model {
    const whole = wholeOf(tree, services, fileOf);
    return new Model(whole, tree, whole.ofNode, fileOf, null);
  }

  private derived({ tree, first }: Derived, of: Model | null): Model {
    return new Model(this.whole, tree, Uint8Array.from(first, (node) => this.origins[node]!), this.fileOf, of);
  }

  /** The same with the frames of some origins, by their place in `ORIGINS`, inside their callers. */
  folded(folded: ReadonlySet<number>): Model {
    if (folded.size === 0) return this;
    const { name } = this.tree.columns;
    const isFolded = (origin: number, node: number) => folded.has(origin) && this.hueOf[name[node]!] !== ROOT_HUE;
    return this.derived(foldTree(this.tree, this.origins.map((origin, node) => Number(isFolded(origin, node)))), null);
  }

  /** Upside down: what costs by itself first, its callers below. */
  inverted(): Model {
    return this.derived(invertTree(this.tree), this);
  }

  /** As collapsed stacks. */
  collapsed(): string {
    return collapsed(this.tree.columns, this.tree.base);
  }

  /** Callers and callees of a function; shares stay those of the whole. */
  sandwich(name: number): { readonly callers: Model; readonly callees: Model } {
    const { callers, callees } = sandwichOf(this.tree, name, this.diff?.now ?? this.layout.total, this.diff?.base ?? null);
    return { callers: this.derived(callers, this), callees: this.derived(callees, this) };
  }

  get total(): number {
    return this.layout.total[0] ?? 0;
  }

  get top(): Top {
    return (this.topOnce ??= topOf(this.layout));
  }

  readonly spellings = (name: number): readonly string[] =>
    (this.spelled[name] ??= name === this.rootName ? ["total"] : spellings(this.layout.columns.names[name]!));

  /** The whole name, safe to show. */
  fullName(name: number): string {
    return name === this.rootName ? "total" : printable(this.layout.columns.names[name]!);
  }

  /** Source file of a name where known, safe to show. */
  fileOfName(name: number): string {
    return printable(this.fileOf.get(this.layout.columns.names[name]!) ?? "");
  }

  /** The name as tables show it. */
  shortName(name: number): string {
    return name === this.rootName ? "total" : printable(shorten(this.layout.columns.names[name]!));
  }

  /** The short name cut before its last part: `["checkout::pricing::", "total"]`. */
  splitName(name: number): [string, string] {
    const whole = this.shortName(name);
    const own = name === this.rootName ? whole : lastPart(whole);
    return [whole.slice(0, whole.length - own.length), own];
  }

  nameOf(node: number): number {
    return this.layout.columns.name[node]!;
  }

  readonly detail = (node: number): string => {
    if (this.diff) return formatChange(this.diff.ofNode(node));
    const value = this.layout.total[node]!;
    return `${this.percent(value)} · ${this.value(value)}`;
  };

  percent(value: number): string {
    return formatPercent(value, (this.of ?? this).total);
  }

  value(value: number): string {
    return formatValue(value, this.meta.unit);
  }

  /** Whether frames of an origin are in the tree, folded or not. */
  has(origin: Origin): boolean {
    return this.whole.ofNode.includes(ORIGINS.indexOf(origin));
  }

  /** Own value by origin, before anything was folded. */
  originShares(): number[] {
    return (this.shares ??= sharesByOrigin(this.whole.ofNode, this.whole.tree.columns.self));
  }

  /** Value of stacks that a sampling rule reduced to their sum. */
  get sampledOut(): number {
    const name = this.layout.columns.names.indexOf(SAMPLED_OUT);
    return name < 0 ? 0 : this.top.total[name]!;
  }

  /** Value of code without a name: as the server knows it, and where a name is no more than an address. */
  get unknown(): number {
    return Math.max(this.meta.unknown, this.originShares()[ORIGINS.indexOf("unknown")]!);
  }
}

function wholeOf(tree: Tree, services: readonly string[], fileOf: ReadonlyMap<string, string>): Whole {
  const { names, depth, name } = tree.columns;
  const rootName = name[0] ?? 0;
  const ofName = classify(names, services, fileOf);
  markKernel(ofName, depth, name);
  ofName[rootName] = ROOT_HUE;
  // The server's words for what it cut, and for what it keeps only the sum of.
  for (const word of ["(other)", SAMPLED_OUT]) {
    const at = names.indexOf(word);
    if (at >= 0) ofName[at] = ROOT_HUE;
  }
  return { tree, rootName, ofName, ofNode: spread(ofName, names, depth, name) };
}
