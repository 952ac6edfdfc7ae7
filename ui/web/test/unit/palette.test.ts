import assert from "node:assert/strict";
import { test } from "node:test";
import { STEPS, shade } from "../../src/flame/palette.ts";
import { ORIGINS } from "../../src/model/origin.ts";
import { DARK, LIGHT } from "../../src/view/theme.ts";

type Rgb = readonly [number, number, number];

const linear = (c: number) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]: Rgb) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const hex = (s: string): Rgb => [1, 3, 5].map((i) => Number.parseInt(s.slice(i, i + 2), 16)) as unknown as Rgb;

function contrast(a: Rgb, b: Rgb): number {
  const [hi, lo] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (hi! + 0.05) / (lo! + 0.05);
}

test("text is readable on every box: contrast of 4.5 at least", () => {
  for (const theme of [LIGHT, DARK]) {
    for (const [i, hue] of theme.hues.entries()) {
      for (let s = 0; s < STEPS; s++) {
        const ratio = contrast(hex(theme.text), shade(hue, s, theme.dark));
        assert.ok(ratio >= 4.5, `hue ${i} step ${s} dark ${theme.dark}: ${ratio.toFixed(2)}`);
      }
    }
    assert.ok(contrast(hex(theme.matchText), hex(theme.match)) >= 4.5);
  }
});

// Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
const BLIND: Record<string, readonly number[]> = {
  none: [1, 0, 0, 0, 1, 0, 0, 0, 1],
  protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
  deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.01182, 0.04294, 0.968881],
};

function oklabSeen(rgb: Rgb, m: readonly number[]): number[] {
  const lin = rgb.map(linear);
  const [r, g, b] = [0, 3, 6].map((i) => Math.max(0, m[i]! * lin[0]! + m[i + 1]! * lin[1]! + m[i + 2]! * lin[2]!)) as [number, number, number];
  const [l, mm, s] = [
    Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b),
    Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b),
    Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b),
  ];
  return [0.2104542553 * l + 0.793617785 * mm - 0.0040720468 * s, 1.9779984951 * l - 2.428592205 * mm + 0.4505937099 * s, 0.0259040371 * l + 0.7827717662 * mm - 0.808675766 * s];
}

test("origins are told apart by red-green blind eyes too", () => {
  for (const theme of [LIGHT, DARK]) {
    for (const [kind, m] of Object.entries(BLIND)) {
      for (let a = 0; a < ORIGINS.length; a++) {
        for (let b = a + 1; b < ORIGINS.length; b++) {
          // Hatching tells unknown from all others.
          if (a === theme.hatched || b === theme.hatched) continue;
          const [x, y] = [a, b].map((i) => oklabSeen(shade(theme.hues[i]!, 5, theme.dark), m));
          const distance = Math.hypot(...x!.map((v, i) => v - y![i]!));
          assert.ok(distance >= 0.06, `${kind}, dark ${theme.dark}: ${ORIGINS[a]} and ${ORIGINS[b]} are ${distance.toFixed(3)} apart`);
        }
      }
    }
  }
});
