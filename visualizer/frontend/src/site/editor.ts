/** The editor that a cell gets when the reader first clicks into its code. */

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { python } from "@codemirror/lang-python";
import {
  bracketMatching,
  HighlightStyle,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";

// The colours of the code that is not being edited, see lesson.css.
const COLOURS = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.controlKeyword], class: "k" },
  { tag: [tags.string, tags.special(tags.string)], class: "s" },
  { tag: [tags.number, tags.bool, tags.null], class: "m" },
  { tag: tags.comment, class: "c" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.className], class: "nf" },
]);

/** Puts an editor in the place of `code`. */
export function openEditor(
  code: HTMLElement,
  {
    label,
    onChange,
    onRun,
  }: { label: string; onChange: (source: string) => void; onRun: () => void },
) {
  const run = () => {
    onRun();
    return true;
  };
  const parent = document.createElement("div");
  parent.className = "code";
  code.hidden = true;
  code.after(parent);
  const view = new EditorView({
    parent,
    doc: code.textContent ?? "",
    extensions: [
      keymap.of([
        { key: "Shift-Enter", run },
        { key: "Mod-Enter", run },
      ]),
      history(),
      // Escape, then Tab, leaves the editor: CodeMirror's own way out for the keyboard.
      keymap.of([indentWithTab, ...defaultKeymap, ...historyKeymap]),
      indentUnit.of("    "),
      bracketMatching(),
      python(),
      syntaxHighlighting(COLOURS),
      EditorView.updateListener.of((update) => {
        if (update.docChanged) onChange(update.state.doc.toString());
      }),
      EditorView.contentAttributes.of({ "aria-label": label }),
    ],
  });
  view.focus();
  return {
    reset(source: string) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: source } });
    },
  };
}
