/** The search box that "/" opens: an input and a list of results. */

import { closest, h } from "../drawing/html.ts";
import { chip } from "../drawing/words_html.ts";
import { Box } from "./box.ts";
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
    placeholder: "request, text, block 7, step 42, preempted, evicted, hit",
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
  element = h("div.search", { role: "search", hidden: true }, this.input, this.count, this.list);

  open() {
    this.element.hidden = false;
    this.input.focus({ preventScroll: true });
    this.input.select();
  }

  close() {
    super.close();
    this.searching = null;
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
    const finds = find(board.model, input.value, board.store.step);
    this.searching = finds;
    this.found = [];
    this.count.dataset.over = "false";
    this.list.replaceChildren();
    this.point(0);
    const slice = () => {
      if (this.searching !== finds || board.signal.aborted) return;
      const until = performance.now() + SLICE;
      let next = finds.next();
      while (!next.done && this.found.length < MOST) {
        if (next.value) this.add(next.value);
        if (performance.now() > until) break;
        next = finds.next();
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
    const who = found.request == null ? null : chip(found.request, context);
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
    this.count.textContent = !this.input.value.trim()
      ? ""
      : over && !length
        ? "No results."
        : `${many} found${over ? "" : ", searching"}; Enter opens the result`;
    Object.assign(this.count.dataset, { over, found: length });
    this.list.hidden = !length;
    this.input.setAttribute("aria-expanded", String(length > 0));
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
    const found = this.found?.[at];
    if (!found) return;
    this.close();
    const { step, request, block } = found;
    this.board.restore({
      step,
      ...(request != null && { selected: request }),
      ...(block != null && { block }),
    });
  }
}

/** A request's name with its swatch, without a button because it is part of an option. */
function label(button: HTMLElement) {
  return h("b.chip", ...button.childNodes);
}
