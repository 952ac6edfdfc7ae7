import type { Columns } from "../flame/index.ts";

/** What the server says about a tree, beside the tree. */
export interface Meta {
  type: string;
  unit: string;
  from_ms: number;
  until_ms: number;
  total: number;
  profiles: number;
  samples: number;
  partial: boolean;
  problems: { segment?: string; reason: string }[];
  unknown: number;
  truncated: number;
  cut_nodes: number;
  cut_value: number;
  /** Profiles of the host agent left out beside better ones. */
  superseded?: number;
  /** Of a diff: the same of the base, and how many events each side counted. */
  base_total?: number;
  base_samples?: number;
  base_profiles?: number;
  base_from_ms?: number;
  base_until_ms?: number;
  events?: number;
  base_events?: number;
}

export interface Tree {
  readonly meta: Meta;
  readonly columns: Columns;
  /** Own values of the base, in a diff. */
  readonly base: Float64Array | null;
}

const HEADER = 20;

/** Reads a tree in the server's binary form ("PLTR", version 1, or 2 for a diff). Throws an Error that says what is wrong and where. */
export function decodeTree(buffer: ArrayBuffer): Tree {
  const bytes = new Uint8Array(buffer);
  if (bytes.length < HEADER || bytes[0] !== 0x50 || bytes[1] !== 0x4c || bytes[2] !== 0x54 || bytes[3] !== 0x52) {
    throw new Error("not a pilotlight tree: the answer does not begin with PLTR");
  }
  const head = new DataView(buffer);
  const version = head.getUint32(4, true);
  if (version !== 1 && version !== 2) throw new Error(`tree format version ${version}, this page reads versions 1 and 2: reload the page`);
  const [nodes, names, metaLength] = [head.getUint32(8, true), head.getUint32(12, true), head.getUint32(16, true)];
  if (nodes > bytes.length || names > bytes.length || HEADER + metaLength > bytes.length) throw cutShort(bytes.length);
  const meta = readMeta(bytes.subarray(HEADER, HEADER + metaLength));
  const reader = new Reader(bytes, HEADER + metaLength);
  const columns = {
    names: readNames(reader, names),
    depth: readDepths(reader, nodes),
    name: readNameIds(reader, nodes, names),
    self: readValues(reader, nodes),
  };
  return { meta, columns, base: version === 2 ? readValues(reader, nodes) : null };
}

function cutShort(at: number): Error {
  return new Error(`tree ends early, at byte ${at}: the connection was cut; try again`);
}

function readMeta(bytes: Uint8Array): Meta {
  const given = JSON.parse(new TextDecoder().decode(bytes)) as Partial<Meta>;
  return {
    type: "", unit: "", from_ms: 0, until_ms: 0, total: 0, profiles: 0, samples: 0, partial: false,
    unknown: 0, truncated: 0, cut_nodes: 0, cut_value: 0, ...given, problems: given.problems ?? [],
  };
}

class Reader {
  constructor(readonly bytes: Uint8Array, public at: number) {}

  /** LEB128 of at most 32 bits. */
  u32(): number {
    const { bytes } = this;
    let byte = bytes[this.at++]!;
    if (byte < 0x80) return byte;
    let value = byte & 0x7f;
    let factor = 128;
    do {
      byte = bytes[this.at++]!;
      if (byte === undefined) throw cutShort(bytes.length);
      value += (byte & 0x7f) * factor;
      factor *= 128;
    } while (byte >= 0x80);
    return value;
  }

  /** Zigzag LEB128 of 64 bits, as the nearest double. */
  i64(): number {
    const { bytes } = this;
    let byte = bytes[this.at++]!;
    const odd = byte & 1;
    let half = (byte & 0x7f) >> 1;
    let factor = 64;
    while (byte >= 0x80) {
      byte = bytes[this.at++]!;
      if (byte === undefined) throw cutShort(bytes.length);
      half += (byte & 0x7f) * factor;
      factor *= 128;
    }
    return odd ? -half - 1 : half;
  }
}

/** Names as slices of one decoded text: no decoder call a name, unless it is not ASCII. */
function readNames(r: Reader, count: number): string[] {
  const { bytes } = r;
  const base = r.at;
  const spans = new Uint32Array(count * 2);
  for (let i = 0; i < count; i++) {
    const length = r.u32();
    spans[2 * i] = r.at;
    r.at += length;
    spans[2 * i + 1] = r.at;
  }
  if (r.at > bytes.length) throw cutShort(bytes.length);
  const latin = new TextDecoder("latin1").decode(bytes.subarray(base, r.at));
  const utf8 = new TextDecoder();
  const names = new Array<string>(count);
  for (let i = 0; i < count; i++) {
    const [from, to] = [spans[2 * i]!, spans[2 * i + 1]!];
    names[i] = isAscii(bytes, from, to) ? latin.slice(from - base, to - base) : utf8.decode(bytes.subarray(from, to));
  }
  return names;
}

function isAscii(bytes: Uint8Array, from: number, to: number): boolean {
  for (let i = from; i < to; i++) if (bytes[i]! >= 0x80) return false;
  return true;
}

function readDepths(r: Reader, count: number): Uint16Array {
  const depth = new Uint16Array(count);
  let last = -1;
  for (let i = 0; i < count; i++) {
    const d = r.u32();
    if (d > last + 1 || (i > 0 && d === 0) || d > 0xffff) throw new Error(`node ${i} has depth ${d} after depth ${last}: the tree is damaged`);
    depth[i] = last = d;
  }
  return depth;
}

function readNameIds(r: Reader, count: number, names: number): Uint32Array {
  const out = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    const id = r.u32();
    if (!(id < names)) throw new Error(`node ${i} has name ${id} of ${names}: the tree is damaged`);
    out[i] = id;
  }
  return out;
}

function readValues(r: Reader, count: number): Float64Array {
  const out = new Float64Array(count);
  for (let i = 0; i < count; i++) out[i] = r.i64();
  if (r.at > r.bytes.length) throw cutShort(r.bytes.length);
  return out;
}
