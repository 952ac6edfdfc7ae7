import { layout, type Layout } from "../flame/index.ts";
import { classify, markKernel, ORIGINS, sharesByOrigin, spread, type Origin } from "./origin.ts";
import { lastPart, printable, shorten, spellings } from "./names.ts";
import { topOf, type Top } from "./top.ts";
import type { Meta, Tree } from "./pltr.ts";
import { bothSides, Diff, formatChange } from "./diff.ts";
import { foldTree } from "./fold.ts";
import { formatPercent, formatValue } from "./format.ts";

/** The server's frame for what it keeps only totals of. */
const SAMPLED_OUT = "[stacks left out by a sampling rule]";
/** Hue of the root, behind those of the origins. */
export const ROOT_HUE = ORIGINS.length;

/** Origin of each name and of each node of a whole tree. */
interface Origins {
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
  /** Of the whole tree: folding changes no origin. */
  private readonly origins: Origins;
  private spelled: (readonly string[] | undefined)[];
  private topOnce: Top | null = null;
  private shares: number[] | null = null;

  /** `folded` holds the origins, by their place in `ORIGINS`, whose frames are part of their callers. */
  constructor(
    private readonly whole: Tree,
    services: readonly string[],
    readonly fileOf: ReadonlyMap<string, string>,
    folded: ReadonlySet<number> = new Set(),
    origins?: Origins,
  ) {
    this.meta = whole.meta;
    this.rootName = whole.columns.name[0] ?? 0;
    this.origins = origins ?? originsOf(whole, this.rootName, services, fileOf);
    this.hueOf = this.origins.ofName;
    let [tree, hues] = [whole, this.origins.ofNode];
    if (folded.size > 0) {
      const { ofName, ofNode } = this.origins;
      const { tree: rest, first } = foldTree(whole, ofNode.map((origin, i) => (folded.has(origin) && ofName[whole.columns.name[i]!] !== ROOT_HUE ? 1 : 0)));
      [tree, hues] = [rest, Uint8Array.from(first, (node) => ofNode[node]!)];
    }
    this.layout = layout(tree.base ? bothSides(tree) : tree.columns);
    this.diff = tree.base ? new Diff(tree, this.layout) : null;
    this.hueOfNode = this.diff?.hueOfNode ?? hues;
    this.spelled = new Array(tree.columns.names.length);
  }

  /** The same with the frames of some origins inside their callers. */
  folded(origins: ReadonlySet<number>): Model {
    return origins.size === 0 ? this : new Model(this.whole, [], this.fileOf, origins, this.origins);
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
    return formatPercent(value, this.total);
  }

  value(value: number): string {
    return formatValue(value, this.meta.unit);
  }

  /** Whether frames of an origin are in the tree, folded or not. */
  has(origin: Origin): boolean {
    return this.origins.ofNode.includes(ORIGINS.indexOf(origin));
  }

  /** Own value by origin, before anything was folded. */
  originShares(): number[] {
    return (this.shares ??= sharesByOrigin(this.origins.ofNode, this.whole.columns.self));
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

function originsOf({ columns }: Tree, rootName: number, services: readonly string[], fileOf: ReadonlyMap<string, string>): Origins {
  const { names, depth, name } = columns;
  const ofName = classify(names, services, fileOf);
  markKernel(ofName, depth, name);
  ofName[rootName] = ROOT_HUE;
  // The server's words for what it cut, and for what it keeps only the sum of.
  for (const word of ["(other)", SAMPLED_OUT]) {
    const at = names.indexOf(word);
    if (at >= 0) ofName[at] = ROOT_HUE;
  }
  return { ofName, ofNode: spread(ofName, names, depth, name) };
}
