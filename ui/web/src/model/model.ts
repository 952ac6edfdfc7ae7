import { layout, type Layout } from "../flame/index.ts";
import { classify, markKernel, ORIGINS, sharesByOrigin, spread } from "./origin.ts";
import { lastPart, printable, shorten, spellings } from "./names.ts";
import { topOf, type Top } from "./top.ts";
import type { Meta, Tree } from "./pltr.ts";
import { bothSides, Diff, formatChange } from "./diff.ts";
import { formatPercent, formatValue } from "./format.ts";

/** The server's frame for what it keeps only totals of. */
const SAMPLED_OUT = "[stacks left out by a sampling rule]";
/** Hue of the root, behind those of the origins. */
export const ROOT_HUE = ORIGINS.length;

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

  constructor(tree: Tree, services: readonly string[], readonly fileOf: ReadonlyMap<string, string>) {
    this.meta = tree.meta;
    this.layout = layout(tree.base ? bothSides(tree) : tree.columns);
    this.diff = tree.base ? new Diff(tree, this.layout) : null;
    this.hueOf = classify(tree.columns.names, services, fileOf);
    markKernel(this.hueOf, tree.columns.depth, tree.columns.name);
    this.rootName = tree.columns.name[0] ?? 0;
    this.hueOf[this.rootName] = ROOT_HUE;
    // The server's word for what it cut.
    const other = tree.columns.names.indexOf("(other)");
    if (other >= 0) this.hueOf[other] = ROOT_HUE;
    this.hueOfNode = this.diff?.hueOfNode ?? spread(this.hueOf, tree.columns.names, tree.columns.depth, tree.columns.name);
    this.spelled = new Array(tree.columns.names.length);
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

  originShares(): number[] {
    return (this.shares ??= sharesByOrigin(this.hueOfNode, this.layout.columns.self));
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
