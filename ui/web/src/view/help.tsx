import { useEffect, useRef } from "preact/hooks";

const KEYS: readonly (readonly [string, string])[] = [
  ["/", "Search"],
  ["↑ ↓ ← →", "Walk the graph: caller, callee, neighbours"],
  ["Enter", "Zoom to the box"],
  ["Backspace", "Zoom out by one caller"],
  ["Esc or 0", "Whole graph"],
  ["n, Shift N", "Next, previous match"],
  ["Shift Enter, click", "Search for this function"],
  ["Home", "Back to the top box"],
  ["?", "This help"],
];

/** The keys of the page. */
export function Help({ isOpen, onClose }: { isOpen: boolean; onClose(): void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (isOpen) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isOpen]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={onClose} onClick={(e) => e.target === dialog.current && onClose()}>
      <h2 id="help-title">Keys</h2>
      <dl>
        {KEYS.map(([key, what]) => (
          <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>
        ))}
      </dl>
      <p class="muted">Width is cost; hue is where code comes from; the stronger the colour, the more cost is the function's own. The Tree view is the same graph as a table, made for screen readers.</p>
      <button type="button" class="primary" onClick={onClose}>Close</button>
    </dialog>
  );
}
