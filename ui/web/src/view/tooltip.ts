import { formatChange, verdict } from "../model/diff.ts";
import { ORIGINS } from "../model/origin.ts";
import type { Model } from "../model/model.ts";

/** The box beside the pointer. Plain DOM: it changes with every movement. */
export class Tooltip {
  private readonly box = document.createElement("div");
  private readonly name = document.createElement("div");
  private readonly facts = document.createElement("div");
  private readonly origin = document.createElement("div");
  private shown = -1;

  constructor(private readonly host: HTMLElement) {
    this.box.className = "tooltip";
    this.box.setAttribute("aria-hidden", "true");
    this.name.className = "tooltip-name";
    this.facts.className = "tooltip-facts";
    this.origin.className = "tooltip-origin";
    this.box.append(this.name, this.facts, this.origin);
    host.append(this.box);
  }

  hide(): void {
    if (this.shown < 0) return;
    this.shown = -1;
    this.box.classList.remove("shown");
  }

  show(model: Model, node: number, zoomed: number, x: number, y: number): void {
    // Sizes are read before anything is written: no layout inside the handler.
    const [w, h] = [this.host.clientWidth, this.host.clientHeight];
    if (node !== this.shown) {
      this.fill(model, node, zoomed);
      this.box.classList.add("shown");
      this.shown = node;
    }
    // Hangs from the corner of the pointer's quarter, so that no measuring is needed to stay inside.
    const style = this.box.style;
    style.left = x < w / 2 ? `${x + 14}px` : "auto";
    style.right = x < w / 2 ? "auto" : `${w - x + 10}px`;
    style.top = y < h / 2 ? `${y + 16}px` : "auto";
    style.bottom = y < h / 2 ? "auto" : `${h - y + 10}px`;
  }

  private fill(model: Model, node: number, zoomed: number): void {
    const { layout } = model;
    const total = layout.total[node]!;
    const self = Math.max(0, layout.columns.self[node]!);
    this.name.textContent = model.fullName(model.nameOf(node));
    const ofZoom = zoomed > 0 ? ` · ${((100 * total) / layout.total[zoomed]!).toFixed(1)} % of the zoomed box` : "";
    this.facts.textContent = `total ${model.value(total)} (${model.percent(total)})${ofZoom}\nself ${model.value(self)} (${model.percent(self)})`;
    if (model.diff) {
      const change = model.diff.ofNode(node);
      this.facts.textContent = `${formatChange(change)}\n${model.value(model.diff.base[node]!)} → ${model.value(model.diff.now[node]!)}`;
      this.origin.textContent = `${verdict(change)} · depth ${layout.columns.depth[node]}`;
      return;
    }
    const origin = ORIGINS[model.hueOfNode[node]!];
    const file = model.fileOfName(model.nameOf(node));
    this.origin.textContent = origin ? `${origin} · depth ${layout.columns.depth[node]}${file && `\n${file}`}` : `${layout.count - 1} frames`;
  }
}
