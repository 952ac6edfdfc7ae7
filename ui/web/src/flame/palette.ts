/** Lightness steps of one hue. */
export const STEPS = 8;

/** A hue in OKLCH: chroma may fall to 0 for grey. */
export interface Hue {
  readonly hue: number;
  readonly chroma: number;
  /** Added to the lightness on light and on dark ground: keeps hues apart for eyes that mix them up. */
  readonly onLight: number;
  readonly onDark: number;
}

/** Everything that the graph needs to know about looks. Colours are CSS strings unless said otherwise. */
export interface Theme {
  readonly dark: boolean;
  readonly background: string;
  readonly text: string;
  readonly match: string;
  readonly matchText: string;
  readonly outline: string;
  readonly focus: string;
  readonly hues: readonly Hue[];
  /** Index of the hue that is drawn hatched, or -1. */
  readonly hatched: number;
}

/** Packed colours (ABGR, as ImageData wants them) of a theme. */
export interface Palette {
  /** hue × STEPS, cold to hot. */
  readonly fill: Uint32Array;
  /** The same, dimmed towards the background: not matched, or an ancestor of the zoomed box. */
  readonly dim: Uint32Array;
  readonly hatch: Uint32Array;
  readonly background: number;
  readonly match: number;
}

export function palette(theme: Theme): Palette {
  const background = parse(theme.background);
  const fill = new Uint32Array(theme.hues.length * STEPS);
  const dim = new Uint32Array(fill.length);
  const hatch = new Uint32Array(theme.hues.length);
  theme.hues.forEach((h, i) => {
    for (let s = 0; s < STEPS; s++) {
      const rgb = shade(h, s, theme.dark);
      fill[i * STEPS + s] = pack(rgb);
      dim[i * STEPS + s] = mix(background, pack(rgb), theme.dark ? 0.38 : 0.36);
    }
    hatch[i] = mix(fill[i * STEPS]!, theme.dark ? 0xffffffff : 0xff000000, 0.16);
  });
  return { fill, dim, hatch, background, match: parse(theme.match) };
}

/** Colour of a hue at a heat step: light themes darken with heat, dark themes brighten. */
export function shade(h: Hue, step: number, dark: boolean): [number, number, number] {
  const t = step / (STEPS - 1);
  const lightness = dark ? 0.4 + 0.16 * t + h.onDark : 0.89 - 0.17 * t + h.onLight;
  const chroma = h.chroma * (dark ? 0.55 + 0.45 * t : 0.42 + 0.58 * t);
  return oklch(lightness, chroma, h.hue);
}

export function css(rgb: readonly [number, number, number]): string {
  return `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]})`;
}

/** OKLCH to sRGB bytes, clipped to the gamut. */
export function oklch(l: number, c: number, hue: number): [number, number, number] {
  const a = c * Math.cos((hue * Math.PI) / 180);
  const b = c * Math.sin((hue * Math.PI) / 180);
  const l3 = (l + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m3 = (l - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s3 = (l - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l3 - 3.3077115913 * m3 + 0.2309699292 * s3),
    gamma(-1.2684380046 * l3 + 2.6097574011 * m3 - 0.3413193965 * s3),
    gamma(-0.0041960863 * l3 - 0.7034186147 * m3 + 1.707614701 * s3),
  ];
}

function gamma(linear: number): number {
  const c = Math.min(1, Math.max(0, linear));
  return Math.round(255 * (c <= 0.0031308 ? 12.92 * c : 1.055 * c ** (1 / 2.4) - 0.055));
}

export function pack([r, g, b]: readonly [number, number, number]): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Mixes two packed colours; `t` = 1 gives the second. */
export function mix(from: number, to: number, t: number): number {
  const part = (shift: number) => {
    const a = (from >>> shift) & 255;
    return Math.round(a + (((to >>> shift) & 255) - a) * t) << shift;
  };
  return (0xff000000 | part(16) | part(8) | part(0)) >>> 0;
}

function parse(hex: string): number {
  const n = Number.parseInt(hex.slice(1), 16);
  return pack([n >> 16, (n >> 8) & 255, n & 255]);
}
