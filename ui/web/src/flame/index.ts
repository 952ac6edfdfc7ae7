/**
 * A flame graph on a canvas. Takes a tree as columns and options, emits events;
 * knows nothing of servers, frameworks, units or what names mean.
 */
export { FlameGraph, type Direction, type Events, type Options } from "./graph.ts";
export * from "./layout.ts";
export { STEPS, css, shade, oklch, palette, type Hue, type Palette, type Theme } from "./palette.ts";
export { findKey, followNames, heaviestOf, namesTo, nodeKey, pathHash } from "./path.ts";
export { maskNames, matchedValue, matchesBefore } from "./search.ts";
