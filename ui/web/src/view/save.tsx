import { pprofAddress } from "../model/api.ts";
import type { Model } from "../model/model.ts";
import { formatRange } from "../model/time.ts";
import type { View } from "../model/view.ts";
import { useMenu } from "./menu.ts";

/** Files of what is on the page. */
export function SaveMenu({ model, view }: { model: Model; view: View }) {
  const { isOpen, setOpen, root } = useMenu();
  const done = () => setOpen(false);
  const saveStacks = () => {
    hand(new Blob([model.collapsed()], { type: "text/plain" }), "profile.collapsed.txt");
    done();
  };
  const savePicture = () => {
    const [picture, title] = [canvases(), titleOf(model, view)];
    done();
    if (picture.length > 0) draw(picture, title).toBlob((blob) => blob && hand(blob, "profile.png"));
  };
  return (
    <div class="save" {...root}>
      <button type="button" class="field" aria-expanded={isOpen} aria-haspopup="dialog" onClick={() => setOpen(!isOpen)} data-testid="save">
        Save<span class="caret" aria-hidden="true">▾</span>
      </button>
      {isOpen && (
        <div class="menu save-menu" role="dialog" aria-label="Save">
          <a href={pprofAddress(view)} download="profile.pb.gz" onClick={done} title={`go tool pprof '${pprofAddress(view)}'`}>pprof<span class="muted"> go tool pprof, Grafana, speedscope</span></a>
          <button type="button" onClick={saveStacks}>Collapsed stacks<span class="muted"> flamegraph.pl, inferno, speedscope</span></button>
          <button type="button" onClick={savePicture} disabled={canvases().length === 0}>Picture<span class="muted"> PNG of the graph in sight</span></button>
        </div>
      )}
    </div>
  );
}

/** Gives the browser a file. */
function hand(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function canvases(): HTMLCanvasElement[] {
  return [...document.querySelectorAll<HTMLCanvasElement>(".flame-canvas:not(.flame-overlay)")].filter((c) => c.width > 0 && c.height > 0);
}

/** What, whose and when: a picture travels without its link. */
function titleOf(model: Model, view: View): string {
  const { meta } = model;
  const base = model.diff ? ` against ${view.base_q || view.q || "{}"}` : "";
  return `${meta.type || view.type}  ${view.q || "{}"}${base}  ${formatRange(meta.from_ms, meta.until_ms, Date.now())}  ${model.value(model.total)}`;
}

const TITLE_HEIGHT = 24;

function draw(parts: readonly HTMLCanvasElement[], title: string): HTMLCanvasElement {
  const scale = devicePixelRatio || 1;
  const out = document.createElement("canvas");
  const head = Math.round(TITLE_HEIGHT * scale);
  out.width = Math.max(...parts.map((part) => part.width));
  out.height = parts.reduce((sum, part) => sum + part.height, head);
  const pen = out.getContext("2d")!;
  const style = getComputedStyle(document.body);
  pen.fillStyle = style.backgroundColor;
  pen.fillRect(0, 0, out.width, out.height);
  pen.fillStyle = style.color;
  pen.font = `${12 * scale}px ${style.fontFamily}`;
  pen.textBaseline = "middle";
  pen.fillText(title, 6 * scale, head / 2, out.width - 12 * scale);
  let top = head;
  for (const part of parts) {
    pen.drawImage(part, 0, top);
    top += part.height;
  }
  return out;
}
