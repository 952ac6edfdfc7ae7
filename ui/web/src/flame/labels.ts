import type { Theme } from "./palette.ts";
import type { Boxes, Frame } from "./raster.ts";
import { fit, type Ruler } from "./text.ts";

export const FONT = '11.5px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Liberation Sans", sans-serif';

const PAD = 5;
/** Room below which a box stays without text. */
const LEAST = 16;

/** What is written into boxes. */
export interface Words {
  readonly theme: Theme;
  /** Spellings of a node's name, longest first. */
  spellings(node: number): readonly string[];
  /** Text at the right end of a wide box. */
  detail(node: number): string;
}

/** Writes names, and at the right end of wide boxes the detail, over the boxes of a frame. */
export function drawLabels(ctx: CanvasRenderingContext2D, ruler: Ruler, boxes: Boxes, f: Frame, ratio: number, words: Words): void {
  const { theme } = words;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  const middle = ((f.rowHeight - f.gap) / 2 + 0.5) / ratio;
  const colours = [theme.text, theme.dark ? "#a9b2bd" : "#57606a", theme.matchText];
  for (let i = 0; i < boxes.node.length; i++) {
    const room = (boxes.right[i]! - boxes.left[i]!) / ratio - 2 * PAD;
    if (room < LEAST) continue;
    ctx.fillStyle = colours[boxes.shown[i]!]!;
    drawLabel(ctx, ruler, words, boxes.node[i]!, boxes.left[i]! / ratio + PAD, boxes.top[i]! / ratio + middle, room);
  }
  ctx.setTransform(1, 0, 0, 1, 0, 0);
}

function drawLabel(ctx: CanvasRenderingContext2D, ruler: Ruler, words: Words, node: number, x: number, y: number, room: number): void {
  const spellings = words.spellings(node);
  const shortest = ruler.width(spellings[spellings.length - 1]!);
  let nameRoom = room;
  if (room > shortest + 60) {
    const detail = words.detail(node);
    const width = ruler.width(detail);
    if (room > shortest + width + 14) {
      nameRoom = room - width - 14;
      ctx.globalAlpha = 0.78;
      ctx.fillText(detail, x + room - width, y);
      ctx.globalAlpha = 1;
    }
  }
  const text = fit(ruler, spellings, nameRoom);
  if (text) ctx.fillText(text, x, y);
}
