import { deepestLevel, entryAt, entryOf, layout, parentOf, type Columns, type Layout } from "./layout.ts";
import { palette, css, shade, type Palette, type Theme } from "./palette.ts";
import { Raster, Shown, rowTop, type Frame, type Paint } from "./raster.ts";
import { matchesBefore } from "./search.ts";
import { FONT, drawLabels } from "./labels.ts";
import { Ruler } from "./text.ts";
import { heaviestChild, heaviestMatch, neighbour, nextMatch } from "./walk.ts";
import { followNames, namesTo } from "./path.ts";

/** Root at the bottom (flame) or at the top (icicle). */
export type Direction = "flame" | "icicle";

/** What the owner of a graph hears. Coordinates are CSS pixels relative to the host. */
export interface Events {
  hover?(node: number, x: number, y: number): void;
  zoom?(node: number): void;
  focus?(node: number): void;
  select?(node: number): void;
  /** A picture was drawn: the visible range in value units. */
  drawn?(from: number, to: number): void;
}

export interface Options {
  theme: Theme;
  direction: Direction;
  /** Spellings of a name, longest first. */
  spellings(name: number): readonly string[];
  /** Text at the right end of a wide box. */
  detail(node: number): string;
  events: Events;
  reducedMotion?: boolean;
}

const ROW = 21;
const ANIMATION_MS = 160;

/** A flame graph in a host element. Knows nothing of servers, frameworks or units. */
export class FlameGraph {
  readonly host: HTMLElement;
  private readonly spacer = document.createElement("div");
  private readonly base = document.createElement("canvas");
  private readonly overlay = document.createElement("canvas");
  private readonly ctx: CanvasRenderingContext2D;
  private readonly over: CanvasRenderingContext2D;
  private readonly raster = new Raster();
  private readonly ruler: Ruler;
  private readonly resize: ResizeObserver;
  private options: Options;
  private colours: Palette;
  private tree: Layout | null = null;
  private hueOf: Uint8Array = new Uint8Array(0);
  private matched: Uint8Array | null = null;
  private before: Uint32Array | null = null;
  private onlyHue = -1;
  private zoomed = 0;
  private contentLevels = 1;
  private from = 0;
  private to = 1;
  private hovered = -1;
  private focused = -1;
  /** Whether the overlay holds marks. */
  private marked = false;
  private frame: Frame | null = null;
  private animation = 0;
  private scheduled = 0;
  private width = 0;
  private height = 0;
  private ratio = 1;
  /** Height of a row in CSS pixels: a whole number of device pixels. */
  private row = ROW;

  constructor(host: HTMLElement, options: Options) {
    this.host = host;
    this.options = options;
    this.colours = palette(options.theme);
    host.classList.add("flame-host");
    this.base.className = "flame-canvas";
    this.overlay.className = "flame-canvas flame-overlay";
    this.spacer.className = "flame-spacer";
    for (const c of [this.base, this.overlay]) c.setAttribute("aria-hidden", "true");
    host.append(this.base, this.overlay, this.spacer);
    this.ctx = this.base.getContext("2d", { alpha: false })!;
    this.over = this.overlay.getContext("2d")!;
    this.ctx.font = FONT;
    this.ruler = new Ruler(this.ctx);
    host.addEventListener("scroll", this.onScroll, { passive: true });
    host.addEventListener("pointermove", this.onMove);
    host.addEventListener("pointerleave", this.onLeave);
    host.addEventListener("click", this.onClick);
    host.addEventListener("keydown", this.onKey);
    host.addEventListener("focus", this.onFocus);
    host.addEventListener("blur", this.onFocus);
    this.resize = new ResizeObserver(() => this.measure());
    this.resize.observe(host);
    this.measure();
  }

  get layout(): Layout | null {
    return this.tree;
  }

  get zoomNode(): number {
    return this.zoomed;
  }

  get focusNode(): number {
    return this.focused;
  }

  /** Shows another tree, with a hue index for each node; zoom, focus and scroll stay where the same path of names exists. */
  setTree(tree: Columns | Layout, hueOf: Uint8Array): void {
    const old = this.tree;
    const zoomPath = old ? namesTo(old, this.zoomed) : [];
    const focusPath = old && this.focused >= 0 ? namesTo(old, this.focused) : null;
    this.tree = "levels" in tree ? tree : layout(tree);
    this.hueOf = hueOf;
    this.matched = this.before = null;
    this.hovered = -1;
    this.focused = focusPath ? followNames(this.tree, focusPath, true) : -1;
    cancelAnimationFrame(this.animation);
    this.show(followNames(this.tree, zoomPath, false), false, old !== null);
  }

  setTheme(theme: Theme): void {
    this.options = { ...this.options, theme };
    this.colours = palette(theme);
    this.schedule();
  }

  setDirection(direction: Direction): void {
    if (direction === this.options.direction) return;
    this.options = { ...this.options, direction };
    this.scrollToZoom();
    this.schedule();
  }

  /** Names to light up, or null. */
  setMatch(mask: Uint8Array | null): void {
    this.matched = mask;
    this.before = mask && this.tree ? matchesBefore(this.tree, mask) : null;
    this.schedule();
  }

  /** The only hue to show in full, or -1. */
  setOnlyHue(hue: number): void {
    this.onlyHue = hue;
    this.schedule();
  }

  /** Gives a box the whole width; node 0 is the root. Emits no event. */
  zoomTo(node: number, animate = true): void {
    if (!this.tree || node < 0 || node >= this.tree.count) return;
    this.show(node, animate && !this.options.reducedMotion, false);
  }

  /** Puts the keyboard focus on a box and scrolls it into view. */
  focusOn(node: number): void {
    if (!this.tree || node < 0) return;
    this.focused = node;
    this.reveal(node);
    this.drawOverlay();
    this.options.events.focus?.(node);
  }

  /** Scrolls to the heaviest match of the zoomed range when no wide match is in sight. */
  revealMatch(): void {
    const l = this.tree;
    if (!l || !this.matched) return;
    this.drawNow();
    if (this.raster.boxes.shown.includes(Shown.Match)) return;
    const best = heaviestMatch(l, this.matched, this.zoomed);
    if (best >= 0) this.reveal(best);
  }

  destroy(): void {
    cancelAnimationFrame(this.animation);
    cancelAnimationFrame(this.scheduled);
    this.resize.disconnect();
    this.host.replaceChildren();
  }

  /** Draws now instead of in the next animation frame. */
  drawNow(): void {
    cancelAnimationFrame(this.scheduled);
    this.scheduled = 0;
    this.draw();
  }

  private show(node: number, animate: boolean, keepScroll: boolean): void {
    const l = this.tree!;
    const entry = entryOf(l, node);
    let from = l.levelStart[entry]!;
    let to = l.levelEnd[entry]!;
    if (!(to > from)) {
      node = 0;
      from = 0;
      to = Math.max(l.total[0]!, 1);
    }
    this.zoomed = node;
    this.contentLevels = (node === 0 ? l.levels - 1 : deepestLevel(l, node)) + 1;
    this.spacer.style.height = `${this.contentLevels * this.row + 8}px`;
    if (!keepScroll) this.scrollToZoom();
    if (animate) this.animate(from, to);
    else {
      cancelAnimationFrame(this.animation);
      this.from = from;
      this.to = to;
      this.schedule();
    }
  }

  private animate(from: number, to: number): void {
    cancelAnimationFrame(this.animation);
    const fromStart = this.from;
    const toStart = this.to;
    const begun = performance.now();
    const step = () => {
      const t = Math.min(1, (performance.now() - begun) / ANIMATION_MS);
      const eased = 1 - (1 - t) ** 3;
      this.from = fromStart + (from - fromStart) * eased;
      this.to = toStart + (to - toStart) * eased;
      if (t < 1) this.animation = requestAnimationFrame(step);
      else [this.from, this.to] = [from, to];
      this.drawNow();
    };
    this.animation = requestAnimationFrame(step);
  }

  private contentHeight(): number {
    return Math.max(this.contentLevels * this.row, this.height);
  }

  /** Keeps two ancestors of the zoomed box in sight. */
  private scrollToZoom(): void {
    if (!this.tree) return;
    const rows = Math.max(0, this.tree.columns.depth[this.zoomed]! - 2);
    const top = rows * this.row;
    this.host.scrollTop = this.options.direction === "flame" ? this.contentHeight() - this.height - top : top;
  }

  private reveal(node: number): void {
    const l = this.tree!;
    const entry = entryOf(l, node);
    if (l.levelStart[entry]! >= this.to || l.levelEnd[entry]! <= this.from) this.zoomTo(0, false);
    const level = l.columns.depth[node]!;
    const top = this.options.direction === "flame" ? this.contentHeight() - (level + 1) * this.row : level * this.row;
    // Two more rows than needed, so that the neighbourhood shows.
    const margin = Math.min(2 * this.row, this.height / 4);
    if (top - margin < this.host.scrollTop) this.host.scrollTop = top - margin;
    else if (top + this.row + margin > this.host.scrollTop + this.height) this.host.scrollTop = top + this.row + margin - this.height;
  }

  private measure(): void {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    const grew = this.height === 0;
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.row = Math.round(ROW * ratio) / ratio;
    for (const c of [this.base, this.overlay]) {
      c.width = Math.max(1, Math.round(width * ratio));
      c.height = Math.max(1, Math.round(height * ratio));
      c.style.width = `${width}px`;
      c.style.height = `${height}px`;
    }
    if (grew) this.scrollToZoom();
    if (this.tree) this.drawNow();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = requestAnimationFrame(() => {
      this.scheduled = 0;
      this.draw();
    });
  }

  private paint(): Paint {
    return {
      palette: this.colours,
      hueOf: this.hueOf,
      hatched: this.options.theme.hatched,
      matched: this.matched,
      matchesBefore: this.before,
      onlyHue: this.onlyHue,
    };
  }

  private draw(): void {
    const l = this.tree;
    if (!l || this.width === 0 || this.height === 0) return;
    const r = this.ratio;
    const frame: Frame = {
      width: this.base.width,
      height: this.base.height,
      rowHeight: Math.round(ROW * r),
      gap: Math.max(1, Math.round(r)),
      from: this.from,
      to: this.to,
      scroll: Math.round(this.host.scrollTop * r),
      flipped: this.options.direction === "flame",
      contentHeight: Math.round(this.contentHeight() * r),
      zoomLevel: l.columns.depth[this.zoomed]!,
    };
    this.frame = frame;
    this.ctx.putImageData(this.raster.draw(l, frame, this.paint()), 0, 0);
    drawLabels(this.ctx, this.ruler, this.raster.boxes, frame, this.ratio, {
      theme: this.options.theme,
      spellings: (node) => this.options.spellings(l.columns.name[node]!),
      detail: this.options.detail,
    });
    this.drawOverlay();
    this.options.events.drawn?.(this.from, this.to);
  }

  private drawOverlay(): void {
    const { over } = this;
    const showsFocus = this.focused >= 0 && document.activeElement === this.host;
    // An untouched canvas costs the browser nothing.
    if (!this.marked && this.hovered < 0 && !showsFocus) return;
    over.clearRect(0, 0, this.overlay.width, this.overlay.height);
    const l = this.tree;
    this.marked = false;
    if (!l || !this.frame) return;
    this.marked = this.hovered >= 0 || showsFocus;
    if (this.hovered >= 0) {
      this.markSameName(l, this.hovered);
      this.outline(l, this.hovered, this.options.theme.outline, 1.5);
    }
    if (showsFocus) this.outline(l, this.focused, this.options.theme.focus, 2.5);
  }

  private markSameName(l: Layout, node: number): void {
    const b = this.raster.boxes;
    const want = l.columns.name[node]!;
    const height = this.frame!.rowHeight - this.frame!.gap;
    this.over.fillStyle = this.options.theme.dark ? "rgb(255 255 255 / 0.2)" : "rgb(0 0 0 / 0.13)";
    for (let i = 0; i < b.node.length; i++) {
      if (l.columns.name[b.node[i]!] === want) this.over.fillRect(b.left[i]!, b.top[i]!, b.right[i]! - b.left[i]!, height);
    }
  }

  private outline(l: Layout, node: number, colour: string, width: number): void {
    const f = this.frame!;
    const scale = f.width / (f.to - f.from);
    const entry = entryOf(l, node);
    const left = Math.max(0, (l.levelStart[entry]! - f.from) * scale);
    const right = Math.min(f.width, (l.levelEnd[entry]! - f.from) * scale);
    if (right < 0 || left > f.width) return;
    const line = width * this.ratio;
    this.over.strokeStyle = colour;
    this.over.lineWidth = line;
    const top = rowTop(f, l.columns.depth[node]!);
    this.over.strokeRect(left + line / 2, top + line / 2, Math.max(1, right - left - line), f.rowHeight - f.gap - line);
  }

  /** Node under a point of the host (CSS pixels), or -1. */
  nodeAt(x: number, y: number): number {
    const l = this.tree;
    if (!l || this.width === 0) return -1;
    const content = y + this.host.scrollTop;
    const row = this.options.direction === "flame" ? (this.contentHeight() - content) / this.row : content / this.row;
    const entry = entryAt(l, Math.floor(row), this.from + (x / this.width) * (this.to - this.from));
    return entry < 0 ? -1 : l.levelNode[entry]!;
  }

  /** Where a node stands on screen (CSS pixels relative to the host). */
  rectOf(node: number): { left: number; right: number; top: number; bottom: number } {
    const l = this.tree!;
    const entry = entryOf(l, node);
    const scale = this.width / (this.to - this.from);
    const level = l.columns.depth[node]!;
    const y = this.options.direction === "flame" ? this.contentHeight() - (level + 1) * this.row : level * this.row;
    const top = y - this.host.scrollTop;
    return {
      left: Math.max(0, (l.levelStart[entry]! - this.from) * scale),
      right: Math.min(this.width, (l.levelEnd[entry]! - this.from) * scale),
      top,
      bottom: top + this.row,
    };
  }

  /** Fill colour of a hue at middle heat, for legends. */
  static swatch(theme: Theme, hue: number): string {
    return css(shade(theme.hues[hue]!, 4, theme.dark));
  }

  private readonly onScroll = (): void => {
    this.setHovered(-1, 0, 0);
    this.schedule();
  };

  private readonly onMove = (e: PointerEvent): void => {
    const box = this.host.getBoundingClientRect();
    const x = e.clientX - box.left;
    const y = e.clientY - box.top;
    this.setHovered(this.nodeAt(x, y), x, y);
  };

  private readonly onFocus = (): void => this.drawOverlay();

  private readonly onLeave = (): void => this.setHovered(-1, 0, 0);

  private setHovered(node: number, x: number, y: number): void {
    if (node !== this.hovered) {
      this.hovered = node;
      this.host.style.cursor = node >= 0 ? "pointer" : "default";
      this.drawOverlay();
    } else if (node < 0) return;
    this.options.events.hover?.(node, x, y);
  }

  private readonly onClick = (e: MouseEvent): void => {
    const box = this.host.getBoundingClientRect();
    const node = this.nodeAt(e.clientX - box.left, e.clientY - box.top);
    if (node < 0) return;
    this.focused = node;
    if (e.shiftKey) this.options.events.select?.(node);
    else this.userZoom(node);
  };

  private userZoom(node: number): void {
    this.zoomTo(node);
    this.options.events.zoom?.(node);
    this.drawOverlay();
  }

  private readonly onKey = (e: KeyboardEvent): void => {
    if (!this.tree || e.ctrlKey || e.metaKey || e.altKey) return;
    if (this.act(e.key, e.shiftKey)) {
      e.preventDefault();
      e.stopPropagation();
    }
  };

  private act(key: string, shift: boolean): boolean {
    const l = this.tree!;
    const at = this.focused >= 0 ? this.focused : this.zoomed;
    const flame = this.options.direction === "flame";
    switch (key) {
      case "ArrowDown":
        return this.walk(flame ? parentOf(l, at) : heaviestChild(l, at));
      case "ArrowUp":
        return this.walk(flame ? heaviestChild(l, at) : parentOf(l, at));
      case "ArrowLeft":
        return this.walk(neighbour(l, at, -1, this.from, this.to));
      case "ArrowRight":
        return this.walk(neighbour(l, at, 1, this.from, this.to));
      case "Home":
        return this.walk(this.zoomed);
      case "Enter":
      case " ":
        if (shift) this.options.events.select?.(at);
        else this.userZoom(at);
        return true;
      case "Backspace":
        this.userZoom(Math.max(0, parentOf(l, this.zoomed)));
        return true;
      case "Escape":
      case "0":
        if (this.zoomed === 0) return key === "0";
        this.userZoom(0);
        return true;
      case "n":
      case "N":
        return this.walk(this.matched ? nextMatch(l, this.matched, at, shift ? -1 : 1) : -1);
      default:
        return false;
    }
  }

  private walk(node: number): boolean {
    this.focusOn(node >= 0 ? node : this.focused >= 0 ? this.focused : this.zoomed);
    return true;
  }
}
