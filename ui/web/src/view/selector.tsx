import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fetchLabelNames, fetchLabelValues } from "../model/api.ts";
import { printable } from "../model/names.ts";
import { formatMatcher, formatSelector, parseSelector, type Matcher } from "../model/selector.ts";
import type { View } from "../model/view.ts";

interface Props {
  view: View;
  onChange(q: string): void;
}

/** Label conditions as chips, and a text box with suggestions that makes new ones. */
export function SelectorBox({ view, onChange }: Props) {
  const parsed = useMemo(() => read(view.q), [view.q]);
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isOpen, setOpen] = useState(false);
  const [picked, setPicked] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const choices = useChoices(text, isOpen, view, parsed.matchers);
  useEffect(() => setPicked(-1), [text]);

  const commit = (typed: string) => {
    try {
      const added = parseSelector(typed);
      if (added.length === 0) return;
      onChange(formatSelector([...parsed.matchers, ...added]));
      setText("");
      setProblem(null);
    } catch (e) {
      setProblem(e instanceof Error ? e.message : String(e));
    }
  };
  const choose = (c: Choice) => {
    if (c.done) commit(c.text);
    else setText(c.text);
    setProblem(null);
    input.current?.focus();
  };
  const remove = (index: number) => {
    onChange(formatSelector(parsed.matchers.filter((_, i) => i !== index)));
    input.current?.focus();
  };
  const edit = (index: number) => {
    setText(formatMatcher(parsed.matchers[index]!));
    remove(index);
  };
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      const n = choices.length;
      setOpen(true);
      if (n > 0) setPicked((p) => (e.key === "ArrowDown" ? (p + 1) % n : (p + n - 1 + (p < 0 ? 1 : 0)) % n));
    } else if (e.key === "Enter" || (e.key === "Tab" && picked >= 0)) {
      const choice = choices[picked];
      if (choice) choose(choice);
      else commit(text);
    } else if (e.key === "Escape") setOpen(false);
    else if (e.key === "Backspace" && text === "" && parsed.matchers.length > 0) edit(parsed.matchers.length - 1);
    else return;
    e.preventDefault();
  };

  const note = problem ?? parsed.problem;
  return (
    <div class={`selector${note ? " bad" : ""}`} onClick={(e) => e.target === e.currentTarget && input.current?.focus()}>
      {parsed.matchers.map((m, i) => (
        <span class="chip" key={formatMatcher(m)}>
          <button type="button" class="chip-text" title="Edit" onClick={() => edit(i)}>
            {printable(m.name)}<b>{m.op}</b>{printable(m.value) || '""'}
          </button>
          <button type="button" class="chip-x" aria-label={`Remove ${m.name}`} onClick={() => remove(i)}>×</button>
        </span>
      ))}
      <input
        ref={input}
        value={text}
        placeholder={parsed.matchers.length === 0 ? "All services: type a label…" : "Add label…"}
        role="combobox"
        aria-label="Select by labels"
        aria-expanded={isOpen && choices.length > 0}
        aria-controls="label-choices"
        aria-autocomplete="list"
        aria-activedescendant={picked >= 0 && choices[picked] ? `choice-${picked}` : undefined}
        aria-invalid={note !== null}
        autocomplete="off"
        spellcheck={false}
        onInput={(e) => {
          setText(e.currentTarget.value);
          setOpen(true);
          setProblem(null);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
      />
      <div id="label-choices" role="listbox" aria-label="Suggestions" class="choices" hidden={!isOpen || choices.length === 0}>
        {isOpen && choices.map((c, i) => (
          <div
            key={c.text}
            id={`choice-${i}`}
            role="option"
            aria-selected={i === picked}
            class={i === picked ? "picked" : ""}
            onMouseDown={(e) => {
              e.preventDefault();
              choose(c);
            }}
          >
            {printable(c.shown)}
          </div>
        ))}
      </div>
      {note && <div class="field-note" role="alert">{note}</div>}
    </div>
  );
}

function read(q: string): { matchers: Matcher[]; problem: string | null } {
  try {
    return { matchers: parseSelector(q), problem: null };
  } catch (e) {
    return { matchers: [], problem: `In the link: ${e instanceof Error ? e.message : String(e)}` };
  }
}

interface Choice {
  readonly text: string;
  readonly shown: string;
  /** A whole condition: choosing it ends the entry. */
  readonly done: boolean;
}

const SHOWN_AT_MOST = 60;

/** Suggestions for what is typed: first label names, behind an operator the values of that label. */
function useChoices(text: string, isOpen: boolean, view: View, matchers: readonly Matcher[]): Choice[] {
  const typed = /^\s*\{?\s*([A-Za-z_][\w.\-/]*)?\s*(=~|!~|!=|=)?\s*"?(.*)$/s.exec(text);
  const [name, op, start] = [typed?.[1] ?? "", typed?.[2] ?? "", typed?.[3] ?? ""];
  const [words, setWords] = useState<{ of: string; list: string[] }>({ of: "", list: [] });
  const wanted = !isOpen ? "" : op ? `values:${name}` : "names";
  useEffect(() => {
    if (wanted === "") return;
    let gone = false;
    const rest = { type: view.type, from: view.from, until: view.until, q: formatSelector(matchers.filter((m) => m.name !== name)) };
    const ask = op ? fetchLabelValues(name, rest) : fetchLabelNames(rest);
    ask.then((list) => gone || setWords({ of: wanted, list }), () => gone || setWords({ of: wanted, list: [] }));
    return () => {
      gone = true;
    };
  }, [wanted, view.q, view.type]);
  if (wanted === "" || words.of !== wanted) return [];
  const needle = (op ? start.replace(/"$/, "") : name).toLowerCase();
  const hits = words.list.filter((w) => w.toLowerCase().includes(needle));
  hits.sort((a, b) => Number(b.toLowerCase().startsWith(needle)) - Number(a.toLowerCase().startsWith(needle)));
  const choices = hits.slice(0, SHOWN_AT_MOST).map((w): Choice => {
    if (!op) return { text: `${w}=`, shown: w, done: false };
    return { text: formatMatcher({ name, op: op as Matcher["op"], value: w }), shown: w, done: true };
  });
  return choices;
}
