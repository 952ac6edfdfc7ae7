import { useEffect, useRef, useState } from "preact/hooks";

/** A menu that a press outside of it, or Escape in it, closes: whether it is open, how to set that, and what its root needs. */
export function useMenu() {
  const [isOpen, setOpen] = useState(false);
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return;
    const outside = (e: Event) => ref.current?.contains(e.target as Node) || setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [isOpen]);
  const onKeyDown = (e: KeyboardEvent) => e.key === "Escape" && setOpen(false);
  return { isOpen, setOpen, root: { ref, onKeyDown } };
}
