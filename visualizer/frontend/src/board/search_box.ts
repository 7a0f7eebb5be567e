/** The search box that "/" opens: an input, questions to ask, and a list of results to walk through. */

import { closest, h } from "../drawing/html.ts";
import { chip } from "../drawing/words_html.ts";
import { Absent } from "../model/indexed_events.ts";
import { count } from "../model/words.ts";
import { Box } from "./box.ts";
import { made } from "./patch_children.ts";
import { isQuestion, suggestions } from "./questions.ts";
import { type Found, find } from "./search.ts";

const MOST = 50;
const SLICE = 8; // ms of searching before the page gets its turn

export class SearchBox extends Box {
  /** The search that goes on. */
  searching!: Generator<Found | null> | null;
  found!: Found[];
  /** Index of the highlighted result. */
  at!: number;
  id = `underglass-${Math.random().toString(36).slice(2)}`;
  input = h("input", {
    type: "search",
    role: "combobox",
    "aria-label": "Search",
    "aria-expanded": "false",
    "aria-autocomplete": "list",
    "aria-controls": this.id,
    placeholder: "a question, a request, its text, block 7, step 42, evicted",
    autocomplete: "off",
    spellcheck: "false",
    input: () => this.search(),
    keydown: (event) => this.key(event),
  });
  list = h("ul", {
    id: this.id,
    role: "listbox",
    "aria-label": "Results",
    hidden: true,
    click: (event) => this.clicked(event),
  });
  count = h("p.muted", { role: "status" });
  questions = h("div.questions.flow", {
    role: "group",
    "aria-label": "Questions",
    click: (event) => this.ask(closest(event, "button")?.textContent),
  });
  element = h(
    "div.search",
    { role: "search", hidden: true },
    this.input,
    this.count,
    this.questions,
    this.list,
  );
  /** Which result is open, and the way to the next one. */
  where = h("span", { role: "status" });
  walk = h(
    "div.walk.flow",
    { role: "group", "aria-label": "Results of the search", hidden: true },
    this.where,
    h("button", { "aria-label": "Previous result", click: () => this.go(-1) }, "◀"),
    h("button", { "aria-label": "Next result", click: () => this.go(1) }, "▶"),
    h("button", { "aria-label": "End the walk", click: () => this.end() }, "×"),
  );

  open() {
    const { model, run } = this.board;
    const causes = run.run?.regimes.map(({ cause }) => cause).filter(Boolean) ?? [];
    const asked = suggestions(model, causes).map((words) => h("button", words));
    this.questions.replaceChildren(...asked);
    this.end();
    this.element.hidden = false;
    this.input.focus({ preventScroll: true });
    this.input.select();
  }

  close() {
    super.close();
    this.searching = null; // what was found until now can be walked through
  }

  key(event: KeyboardEvent) {
    const move = ({ ArrowDown: 1, ArrowUp: -1 } as Record<string, number>)[event.key];
    if (move) this.point(this.at + move);
    else if (event.key === "Enter") this.take(this.at);
    else if (event.key === "Escape") this.close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  clicked(event: Event) {
    const at = [...this.list.children].indexOf(closest(event, "li") as HTMLElement);
    if (at >= 0) this.take(at);
  }

  /** Searches in slices, so that the page stays responsive whatever the size of the log. */
  search() {
    const { board, input } = this;
    const { step, slo } = board.store;
    const finds = find(board.model, input.value, step, slo);
    this.searching = finds;
    this.found = [];
    this.count.dataset.over = "false";
    this.list.replaceChildren();
    this.point(0);
    const slice = () => {
      if (this.searching !== finds || board.signal.aborted) return;
      const until = performance.now() + SLICE;
      let next: ReturnType<typeof finds.next>;
      try {
        next = finds.next();
        while (!next.done && this.found.length < MOST) {
          if (next.value) this.add(next.value);
          if (performance.now() > until) break;
          next = finds.next();
        }
      } catch (error) {
        const again = () => this.searching === finds && this.search();
        return void Absent.fetch(error, again);
      }
      const over = !!next.done || this.found.length >= MOST;
      this.writeStatus(over);
      if (over) this.searching = null;
      else setTimeout(slice);
    };
    slice();
  }

  add(found: Found) {
    const { board } = this;
    this.found.push(found);
    const context = { ...board.context(), frame: found }; // the swatch of the step that was found
    const who = found.request == null ? null : made(chip(found.request, context));
    who?.setAttribute("tabindex", "-1");
    const item = h(
      "li",
      { role: "option", id: `${this.id}-${this.found.length - 1}`, "data-kind": found.kind },
      h("span.kind.muted", found.kind),
      h("span.what", who ? label(who) : null, found.text.replace(/\n/g, "⏎")),
      h("span.muted", `step ${found.step}`),
    );
    this.list.append(item);
    if (this.found.length === 1) this.point(0);
  }

  writeStatus(over: boolean) {
    const { length } = this.found;
    const many = length >= MOST ? `the first ${MOST}` : String(length);
    this.questions.hidden = !!this.input.value.trim();
    this.count.textContent = !this.input.value.trim()
      ? ""
      : over && !length
        ? this.nothing
        : `${many} found${over ? "" : ", searching"}; Enter opens the result`;
    Object.assign(this.count.dataset, { over, found: length });
    this.list.hidden = !length;
    this.input.setAttribute("aria-expanded", String(length > 0));
  }

  /** What an empty result means. */
  get nothing() {
    const { model, store } = this.board;
    return isQuestion(model, this.input.value, store.slo)
      ? "The answer is: no request."
      : "No results.";
  }

  point(at: number) {
    const items = [...this.list.children] as HTMLElement[];
    this.at = Math.min(Math.max(at, 0), Math.max(0, items.length - 1));
    items.forEach((item, i) => item.setAttribute("aria-selected", String(i === this.at)));
    const item = items[this.at];
    if (item) this.input.setAttribute("aria-activedescendant", item.id);
    else this.input.removeAttribute("aria-activedescendant");
    if (item) this.list.scrollTop = item.offsetTop - this.list.clientHeight / 2;
  }

  take(at: number) {
    if (!this.found?.[at]) return;
    this.close();
    this.at = at;
    this.go(0);
  }

  /** Opens the result that is so many behind the open one. */
  go(by: number) {
    const { found, walk, board } = this;
    if (!found?.length || (!by && !found[this.at])) return;
    this.at = (this.at + by + found.length) % found.length;
    const { step, request, block, only, text } = found[this.at];
    board.restore({
      step,
      ...(request != null && { selected: request }),
      ...(block != null && { block }),
      ...(only && { only }),
    });
    walk.hidden = found.length < 2;
    const place = `${this.at + 1} of ${count(found.length, "result")}`;
    const who = request == null ? "" : `${board.model.tag(request).text}, `;
    const words = `${this.input.value.trim()}, ${place}: ${who}${text.replace(/\n/g, "⏎")}`;
    this.where.textContent = words;
  }

  /** Takes the walk away. */
  end() {
    this.walk.hidden = true;
  }

  /** Searches for words that were not typed. */
  ask(words: string | null | undefined) {
    if (!words) return;
    this.input.value = words;
    this.input.focus({ preventScroll: true });
    this.search();
  }
}

/** A request's name with its swatch, without a button because it is part of an option. */
function label(button: HTMLElement) {
  return h("b.chip", ...button.childNodes);
}
