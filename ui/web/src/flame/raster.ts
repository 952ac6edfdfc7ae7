import { firstEndingAfter, type Layout } from "./layout.ts";
import { STEPS, mix, type Palette } from "./palette.ts";

/** What part of the picture is asked for. Lengths in device pixels, `from` and `to` in value units. */
export interface Frame {
  readonly width: number;
  readonly height: number;
  readonly rowHeight: number;
  readonly gap: number;
  readonly from: number;
  readonly to: number;
  /** Pixels of content above the first visible one. */
  readonly scroll: number;
  /** Root at the bottom; then `contentHeight` says where that is. */
  readonly flipped: boolean;
  readonly contentHeight: number;
  /** Levels above this one are ancestors of the zoomed box. */
  readonly zoomLevel: number;
}

/** What decides the colour of a box. */
export interface Paint {
  readonly palette: Palette;
  /** Hue index of each node. */
  readonly hueOf: Uint8Array;
  readonly hatched: number;
  /** Matches of a search and their counts before each level entry, or null. */
  readonly matched: Uint8Array | null;
  readonly matchesBefore: Uint32Array | null;
  /** The only hue that is not dimmed, or -1 for all. */
  readonly onlyHue: number;
}

/** How a box is shown. */
export const enum Shown {
  Plain = 0,
  Dim = 1,
  Match = 2,
}

/** Boxes of the last picture that are wide enough to point at, as parallel arrays. */
export class Boxes {
  left: number[] = [];
  right: number[] = [];
  top: number[] = [];
  node: number[] = [];
  shown: Shown[] = [];

  clear(): void {
    this.left.length = this.right.length = this.top.length = this.node.length = this.shown.length = 0;
  }
}

/** Entries of a sub-pixel run that are looked at to find its colour. */
const RUN_SAMPLES = 4;
/** Steps of tint for how full a pixel is. */
const TINTS = 4;

/** Top of a level's row in a frame. */
export function rowTop(f: Frame, level: number): number {
  return (f.flipped ? f.contentHeight - (level + 1) * f.rowHeight : level * f.rowHeight) - f.scroll;
}

/** Paints boxes straight into pixels: the cost is bounded by the picture, not by the tree. */
export class Raster {
  readonly boxes = new Boxes();
  private image: ImageData | null = null;
  private pixels: Uint32Array<ArrayBufferLike> = new Uint32Array(0);
  private line = new Uint32Array(0);
  private hatchSpans: number[] = [];
  private tints: Uint32Array = new Uint32Array(0);
  private tintsOf: Palette | null = null;

  /** Draws a frame; the picture is valid until the next call. */
  draw(l: Layout, f: Frame, paint: Paint): ImageData {
    const image = this.prepare(f, paint);
    this.boxes.clear();
    for (let level = 0; level < l.levels; level++) {
      const top = rowTop(f, level);
      if (top + f.rowHeight <= 0 || top >= f.height) continue;
      if (this.paintLevel(l, f, paint, level, top)) this.copyRow(f, paint, top);
    }
    return image;
  }

  private prepare(f: Frame, paint: Paint): ImageData {
    if (!this.image || this.image.width !== f.width || this.image.height !== f.height) {
      this.image = new ImageData(f.width, f.height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.line = new Uint32Array(f.width);
    }
    if (this.tintsOf !== paint.palette) {
      this.tints = tintTable(paint.palette);
      this.tintsOf = paint.palette;
    }
    this.pixels.fill(paint.palette.background);
    return this.image;
  }

  /** Fills `line` with one level; false when nothing of it is in view. */
  private paintLevel(l: Layout, f: Frame, paint: Paint, level: number, top: number): boolean {
    const scale = f.width / (f.to - f.from);
    const end = l.levelOffset[level + 1]!;
    let k = firstEndingAfter(l, level, f.from);
    if (k >= end || l.levelStart[k]! >= f.to) return false;
    this.line.fill(paint.palette.background);
    this.hatchSpans.length = 0;
    const above = level < f.zoomLevel;
    while (k < end && l.levelStart[k]! < f.to) {
      const left = (l.levelStart[k]! - f.from) * scale;
      const right = (l.levelEnd[k]! - f.from) * scale;
      if (right - left >= 1.5) {
        this.paintBox(l, f, paint, k, left, right, above, top);
        k++;
      } else {
        k = this.paintRun(l, f, paint, k, end, left, scale, above);
      }
    }
    return true;
  }

  private paintBox(l: Layout, f: Frame, paint: Paint, k: number, left: number, right: number, above: boolean, top: number): void {
    const node = l.levelNode[k]!;
    const name = l.columns.name[node]!;
    const hue = paint.hueOf[node]!;
    const shown = showing(paint, hue, paint.matched !== null && paint.matched[name] === 1, above);
    const x0 = Math.max(0, Math.round(left));
    const x1 = Math.min(f.width, Math.max(x0 + 1, Math.round(right)));
    const edge = x1 - x0 >= 3 && right <= f.width ? f.gap : 0;
    const at = hue * STEPS + heat(l, node);
    const { palette } = paint;
    this.line.fill(shown === Shown.Match ? palette.match : (shown === Shown.Dim ? palette.dim : palette.fill)[at]!, x0, x1 - edge);
    if (hue === paint.hatched && shown === Shown.Plain && x1 - x0 >= 3) this.hatchSpans.push(x0, x1 - edge);
    if (x1 - x0 < 2) return;
    const b = this.boxes;
    b.left.push(x0);
    b.right.push(x1 - edge);
    b.top.push(top);
    b.node.push(node);
    b.shown.push(shown);
  }

  /** Paints one pixel for all boxes that end inside it; returns the first entry behind them. */
  private paintRun(l: Layout, f: Frame, paint: Paint, k: number, end: number, left: number, scale: number, above: boolean): number {
    const x = Math.max(0, Math.floor(left));
    const boundary = f.from + (x + 1) / scale;
    const next = Math.max(k + 1, gallop(l.levelEnd, k, end, boundary));
    if (x >= f.width) return next;
    const full = Math.min(1, (l.levelFill[next]! - l.levelFill[k]!) * scale);
    const best = majority(l, paint, k, next);
    const hasMatch = paint.matchesBefore !== null && paint.matchesBefore[next]! > paint.matchesBefore[k]!;
    const shown = showing(paint, (best / STEPS) | 0, hasMatch, above);
    const tint = Math.min(TINTS - 1, (full * TINTS) | 0);
    const { palette } = paint;
    this.line[x] = shown === Shown.Match ? palette.match : shown === Shown.Dim ? palette.dim[best]! : this.tints[best * TINTS + tint]!;
    return next;
  }

  private copyRow(f: Frame, paint: Paint, top: number): void {
    const last = Math.min(f.height, top + f.rowHeight - f.gap);
    for (let y = Math.max(0, top); y < last; y++) this.pixels.set(this.line, y * f.width);
    const period = 6 * f.gap;
    const hatch = paint.palette.hatch[paint.hatched]!;
    for (let s = 0; s < this.hatchSpans.length; s += 2) {
      for (let y = Math.max(0, top); y < last; y++) {
        const base = y * f.width;
        const right = this.hatchSpans[s + 1]!;
        for (let x = this.hatchSpans[s]!; x < right; x++) {
          if ((x + y - top) % period < f.gap * 1.5) this.pixels[base + x] = hatch;
        }
      }
    }
  }
}

function showing(paint: Paint, hue: number, match: boolean, above: boolean): Shown {
  if (match) return Shown.Match;
  const searched = paint.matched !== null;
  const filtered = paint.onlyHue >= 0 && paint.onlyHue !== hue;
  return searched || filtered || above ? Shown.Dim : Shown.Plain;
}

/** Heat step: a quarter of the whole in one box's own code is the hottest. */
function heat(l: Layout, node: number): number {
  const share = l.columns.self[node]! / l.total[0]!;
  return share > 0 ? Math.min(STEPS - 1, (STEPS * Math.sqrt(share * 4)) | 0) : 0;
}

/** Colour index of a run: that of its widest box, looked for among a few entries spread over it. */
function majority(l: Layout, paint: Paint, from: number, to: number): number {
  const step = Math.max(1, ((to - from) / RUN_SAMPLES) | 0);
  let widest = from;
  let width = l.levelEnd[from]! - l.levelStart[from]!;
  for (let k = from + step; k < to; k += step) {
    const w = l.levelEnd[k]! - l.levelStart[k]!;
    if (w > width) {
      width = w;
      widest = k;
    }
  }
  const node = l.levelNode[widest]!;
  return paint.hueOf[node]! * STEPS + heat(l, node);
}

/** First index in [from, to) whose value is beyond `limit`: doubling steps, then bisection. */
function gallop(ends: Float64Array, from: number, to: number, limit: number): number {
  let step = 1;
  let lo = from;
  while (lo + step < to && ends[lo + step]! <= limit) {
    lo += step;
    step *= 2;
  }
  let hi = Math.min(to, lo + step);
  while (lo < hi) {
    const mid = (lo + hi) >>> 1;
    if (ends[mid]! > limit) hi = mid;
    else lo = mid + 1;
  }
  return lo;
}

function tintTable(p: Palette): Uint32Array {
  const out = new Uint32Array(p.fill.length * TINTS);
  for (let i = 0; i < p.fill.length; i++) {
    for (let t = 0; t < TINTS; t++) out[i * TINTS + t] = mix(p.background, p.fill[i]!, 0.3 + (0.7 * (t + 1)) / TINTS);
  }
  return out;
}
