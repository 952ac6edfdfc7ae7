import { useCallback, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

export const ROW_HEIGHT = 24;
const OVERSCAN = 6;

/** Which rows of a long list are in sight: [first, last). */
export function useVirtual(count: number): { host: RefObject<HTMLDivElement | null>; first: number; last: number; reveal(index: number): void } {
  const host = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<readonly [number, number]>([0, 60]);
  const look = useCallback(() => {
    const h = host.current;
    if (!h) return;
    const first = Math.max(0, Math.floor(h.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const last = Math.ceil((h.scrollTop + h.clientHeight) / ROW_HEIGHT) + OVERSCAN;
    setRange((old) => (old[0] === first && old[1] === last ? old : [first, last]));
  }, []);
  useLayoutEffect(() => {
    const h = host.current!;
    const watch = new ResizeObserver(look);
    watch.observe(h);
    h.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watch.disconnect();
      h.removeEventListener("scroll", look);
    };
  }, []);
  const reveal = useCallback((index: number) => {
    const h = host.current;
    if (!h) return;
    const top = index * ROW_HEIGHT;
    const room = h.clientHeight - ROW_HEIGHT;
    if (top < h.scrollTop) h.scrollTop = top;
    else if (top + ROW_HEIGHT > h.scrollTop + room) h.scrollTop = top + ROW_HEIGHT - room;
    look();
  }, []);
  return { host, first: Math.min(range[0], count), last: Math.min(range[1], count), reveal };
}
