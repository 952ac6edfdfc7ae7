import { useEffect, useState } from "preact/hooks";
import type { Theme } from "../flame/index.ts";

export type ThemeChoice = "system" | "light" | "dark";

/** app, dependency, runtime, libc, kernel, unknown, root: found by a search for the widest distance under red-green blindness (test/unit/palette). */
const HUES: Theme["hues"] = [
  { hue: 65, chroma: 0.153, onLight: -0.025, onDark: -0.013 },
  { hue: 262, chroma: 0.13, onLight: 0.014, onDark: -0.017 },
  { hue: 182, chroma: 0.071, onLight: 0.05, onDark: -0.07 },
  { hue: 311, chroma: 0.073, onLight: -0.014, onDark: -0.02 },
  { hue: 23, chroma: 0.126, onLight: -0.057, onDark: -0.056 },
  { hue: 250, chroma: 0.006, onLight: 0, onDark: -0.03 },
  { hue: 250, chroma: 0.022, onLight: 0, onDark: -0.06 },
];

export const LIGHT: Theme = {
  dark: false, background: "#ffffff", text: "#1b1f24", match: "#b3206f", matchText: "#ffffff",
  outline: "#1b1f24", focus: "#0b5cad", hues: HUES, hatched: 5,
};
export const DARK: Theme = {
  dark: true, background: "#0e1116", text: "#f2f4f7", match: "#ff85c8", matchText: "#24000f",
  outline: "#ffffff", focus: "#7cc0ff", hues: HUES, hatched: 5,
};

/** Blue for less, grey, orange to red for more; told apart by eyes that mix up red and green. */
const CHANGES: Theme["hues"] = [
  { hue: 250, chroma: 0.16, onLight: -0.1, onDark: 0.06 },
  { hue: 245, chroma: 0.11, onLight: -0.03, onDark: 0 },
  { hue: 240, chroma: 0.06, onLight: 0.02, onDark: -0.04 },
  { hue: 250, chroma: 0.006, onLight: 0.02, onDark: -0.06 },
  { hue: 70, chroma: 0.08, onLight: 0.02, onDark: -0.04 },
  { hue: 50, chroma: 0.14, onLight: -0.03, onDark: 0 },
  { hue: 28, chroma: 0.19, onLight: -0.1, onDark: 0.04 },
];
const LIGHT_DIFF: Theme = { ...LIGHT, hues: CHANGES, hatched: -1 };
const DARK_DIFF: Theme = { ...DARK, hues: CHANGES, hatched: -1 };

/** The same theme with the colours of a diff. */
export function diffTheme(theme: Theme): Theme {
  return theme.dark ? DARK_DIFF : LIGHT_DIFF;
}

const KEY = "pilotlight.theme";

/** The theme in use and how to choose another; kept in this browser, not in the link. */
export function useTheme(): [Theme, ThemeChoice, (c: ThemeChoice) => void] {
  const [choice, setChoice] = useState<ThemeChoice>(stored);
  const [systemDark, setSystemDark] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setSystemDark(query.matches);
    query.addEventListener("change", follow);
    return () => query.removeEventListener("change", follow);
  }, []);
  const dark = choice === "system" ? systemDark : choice === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const choose = (c: ThemeChoice) => {
    setChoice(c);
    try {
      localStorage.setItem(KEY, c);
    } catch {
      // Storage may be forbidden: the choice then lasts as long as the page.
    }
  };
  return [dark ? DARK : LIGHT, choice, choose];
}

function stored(): ThemeChoice {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}
