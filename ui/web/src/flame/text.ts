/** Widths of text by a table of glyph advances: thousands of labels a frame without `measureText`. */
export class Ruler {
  private readonly ascii = new Float32Array(128);
  private readonly others = new Map<string, number>();

  constructor(private readonly ctx: CanvasRenderingContext2D) {
    for (let c = 32; c < 127; c++) this.ascii[c] = ctx.measureText(String.fromCharCode(c)).width;
  }

  width(text: string): number {
    let sum = 0;
    for (let i = 0; i < text.length; i++) {
      const c = text.charCodeAt(i);
      sum += c < 127 ? this.ascii[c]! : this.other(text[i]!);
    }
    return sum;
  }

  /** Longest start of the text that fits with an ellipsis; empty when not even three characters do. */
  clip(text: string, room: number): string {
    let sum = this.other("…");
    let i = 0;
    for (; i < text.length; i++) {
      const c = text.charCodeAt(i);
      sum += c < 127 ? this.ascii[c]! : this.other(text[i]!);
      if (sum > room) break;
    }
    return i < 3 ? "" : `${text.slice(0, i)}…`;
  }

  private other(char: string): number {
    let width = this.others.get(char);
    if (width === undefined) {
      width = this.ctx.measureText(char).width;
      this.others.set(char, width);
    }
    return width;
  }
}

/** The longest of several spellings of a name (longest first) that fits, else the clipped shortest. */
export function fit(ruler: Ruler, spellings: readonly string[], room: number): string {
  for (const text of spellings) if (ruler.width(text) <= room) return text;
  return ruler.clip(spellings[spellings.length - 1]!, room);
}
