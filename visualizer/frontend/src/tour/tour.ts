/**
 * "Tell me": a tour of the log, one scene at a time, in place of the board. A scene has its sentences, one large picture,
 * at most three small ones and the answer to one "why?". Escape returns to the board at the scene's step.
 */

// A board has loaded this already. Without it, what both need would be a file of its own.
import "../board/board.ts";
import { patchChildren, v } from "../board/patch_children.ts";
import type { Shell } from "../board/shell.ts";
import { watchTheme } from "../board/theme.ts";
import { h, onResize } from "../drawing/html.ts";
import { swatchOf } from "../drawing/marks.ts";
import { THEMES, type Theme } from "../drawing/palette.ts";
import { halved } from "../drawing/words_html.ts";
import type { Model } from "../model/model.ts";
import { timeWords } from "../model/waterfall_words.ts";
import { LitPainter } from "./lit_painter.ts";
import { drawPanel, heightOf } from "./pictures.ts";
import { owned, type PanelKind, type Scene, spansOf, type TourHost } from "./scenes.ts";
import css from "./tour.css";
import { saveGif } from "./tour_gif.ts";
import { TourSheet } from "./tour_sheet.ts";

const NARROW = 720; // px
const LARGE = { wide: 372, narrow: 300 };
const MOST_NAMES = 9;
const CHANGE = 150; // ms

export class TourView {
  shell: Shell;
  host: TourHost;
  scenes: Scene[];
  at = 0;
  #end = new AbortController();
  #width = 0;
  where = h("p.where.muted", { "aria-hidden": "true" });
  said = h("p.said");
  why = h("button.ask", { click: () => this.toggleWhy() });
  answer = h("p.answer", { hidden: true });
  large = h("canvas.large", { role: "img" });
  beside = h("div.beside");
  dots = h("span.dots.line", { "aria-hidden": "true" });
  next = h("span.muted");
  back = h("button.leaf", { "data-act": "back", click: () => this.go(-1) }, "‹ Back");
  forward = h("button.leaf.main", { "data-act": "next", click: () => this.go(1) }, "Next ›");
  note = h("span.muted", { role: "status" });
  element: HTMLElement;
  sheet: TourSheet;

  constructor(shell: Shell, host: TourHost, scenes: Scene[]) {
    this.shell = shell;
    this.host = host;
    this.scenes = scenes;
    const gif = () => saveGif(this.host, this.scenes, (words) => (this.note.textContent = words));
    this.element = h(
      "section.tour",
      {
        "aria-label": "A tour of the log",
        tabindex: "-1",
        click: (event) => event.stopPropagation(),
      },
      h("style", css),
      h(
        "div.top.flow",
        h(
          "p",
          h("strong", "Tell me what happened"),
          h("span.muted", host.title && ` · ${host.title}`),
        ),
        h(
          "p.flow.muted",
          this.note,
          h("button", { "data-act": "gif", click: gif }, "Save as GIF"),
          h("button", { "data-act": "print", click: () => print() }, "Print one page"),
          h(
            "button",
            { "data-act": "close", click: () => this.close() },
            "Back to the board ",
            h("kbd", "Esc"),
          ),
        ),
      ),
      h(
        "div.scene",
        h(
          "div.told",
          this.where,
          h("div", { "aria-live": "polite" }, this.said, this.why, this.answer),
          this.large,
        ),
        this.beside,
      ),
      h("div.turn.line", this.back, this.dots, h("span.space"), this.next, this.forward),
    );
    this.sheet = new TourSheet(host, scenes, this.#end.signal);
    shell.root.append(this.element, this.sheet.element);
    const { signal } = this.#end;
    shell.signal.addEventListener("abort", () => this.#end.abort(), { signal });
    // In capture: the board's own keys must not act while the tour is told.
    shell.root.addEventListener("keydown", (event) => this.#key(event), { signal, capture: true });
    watchTheme(() => queueMicrotask(() => this.show()), signal);
    const isNew = () => this.element.clientWidth !== this.#width;
    onResize(this.element, () => isNew() && this.draw(), signal);
    shell.root.dataset.tour = "";
    this.show();
    this.element.focus({ preventScroll: true });
    if (this.element.getBoundingClientRect().top < 0) this.element.scrollIntoView();
  }

  get scene() {
    return this.scenes[this.at];
  }

  get model(): Model | null {
    return this.host.modelOf(this.scene, this.scene.run);
  }

  /** The page's name of a request. */
  nameOf(request: number) {
    return this.model?.request(request)?.name ?? this.host.nameOf?.(request);
  }

  laneOf(request: number) {
    return this.model?.request(request)
      ? this.model.laneOf(request, this.scene.step ?? undefined)
      : null;
  }

  go(by: number) {
    const at = Math.min(Math.max(this.at + by, 0), this.scenes.length - 1);
    if (at === this.at) return;
    this.at = at;
    this.show();
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches)
      this.element.querySelector(".scene")?.animate({ opacity: [0.2, 1] }, CHANGE);
  }

  toggleWhy() {
    this.answer.hidden = !this.answer.hidden;
    this.why.setAttribute("aria-expanded", `${!this.answer.hidden}`);
  }

  /** Returns to the board at the scene's step. */
  close() {
    const { shell, scene } = this;
    this.#end.abort();
    this.element.remove();
    this.sheet.element.remove();
    delete shell.root.dataset.tour;
    shell.layout();
    this.host.leave(scene);
    shell.root.focus({ preventScroll: true });
  }

  #key(event: KeyboardEvent) {
    const { key, ctrlKey, metaKey, altKey } = event;
    if (key === "Tab" || ctrlKey || metaKey || altKey) return;
    event.stopPropagation();
    const acts: Record<string, () => void> = {
      ArrowRight: () => this.go(1),
      ".": () => this.go(1),
      ArrowLeft: () => this.go(-1),
      ",": () => this.go(-1),
      Home: () => this.go(-this.scenes.length),
      End: () => this.go(this.scenes.length),
      "?": () => this.toggleWhy(),
      Escape: () => this.close(),
    };
    const act = acts[key] ?? (key.toLowerCase() === "g" ? acts.Escape : null);
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Writes and draws the scene. */
  show() {
    const { scene, scenes, at, shell } = this;
    const theme = this.host.theme();
    const spans = spansOf(scene, (id) => this.nameOf(id));
    const nodes = spans.flatMap(({ text, request }) =>
      request == null ? halved(text) : this.#name(request, text, theme),
    );
    this.where.textContent = `Scene ${at + 1} of ${scenes.length} · ${scene.title}`;
    patchChildren(this.said, [
      v("span.for-screen-readers", `Scene ${at + 1} of ${scenes.length}, ${scene.title}. `),
      ...nodes,
    ]);
    this.why.hidden = !scene.why;
    const [about] = scene.requests;
    this.why.textContent = scene.question.replace("{}", this.nameOf(about) ?? "");
    this.why.setAttribute("aria-expanded", "false");
    this.answer.hidden = true;
    this.answer.textContent = scene.why;
    this.back.disabled = at === 0;
    this.forward.disabled = at === scenes.length - 1;
    this.next.textContent =
      at < scenes.length - 1 ? `Next: ${scenes[at + 1].title}` : "That is all.";
    this.dots.replaceChildren(
      ...scenes.map((_, index) =>
        h("i", { "data-place": index < at ? "past" : index > at ? "" : "here" }),
      ),
    );
    this.large.setAttribute("aria-label", scene.sentences.length ? `Picture: ${scene.title}` : "");
    Object.assign(shell.root.dataset, {
      tour: `${at + 1}`,
      scenes: `${scenes.length}`,
      kind: scene.kind,
    });
    this.draw();
  }

  #name(request: number, name: string, theme: Theme) {
    const lane = this.laneOf(request);
    const swatch =
      this.model?.request(request) && v("i", { "aria-hidden": "true", ...swatchOf(theme, lane) });
    return v("span.together", swatch, v("strong", { "data-lit": `${request}` }, name));
  }

  /** Draws the pictures for the width. */
  draw() {
    const { scene, host, large, element } = this;
    this.#width = element.clientWidth;
    if (!this.#width) return;
    const narrow = this.#width < NARROW;
    element.toggleAttribute("data-narrow", narrow);
    this.beside.replaceChildren(...scene.beside.slice(0, 3).map((kind) => this.#small(kind)));
    element.toggleAttribute("data-alone", !this.beside.childElementCount);
    const unit = narrow || this.#width < 1500 ? 1 : 1.3;
    element.style.setProperty("--px", `${unit}px`);
    const width = (large.parentElement as HTMLElement).clientWidth / unit;
    const least = LARGE[narrow ? "narrow" : "wide"];
    const place = { host, scene, width, small: false };
    const height = heightOf(scene.panel, { ...place, height: least }, width) || least;
    const painter = new LitPainter(large).begin(width, height, unit, host.theme()) as LitPainter;
    drawPanel(scene.panel, { ...place, painter, height });
    large.dataset.lit = scene.requests.join(" ");
    large.dataset.panel = scene.panel;
    for (const canvas of this.beside.querySelectorAll("canvas")) this.#drawSmall(canvas, unit);
  }

  #small(kind: PanelKind) {
    const { model, scene } = this;
    if (!model) return h("div");
    const frame = model.frame(scene.step ?? model.firstStep);
    const [title, words] = this.#heading(kind, model);
    const head = h("p", h("strong", title), " ", h("span.muted", words));
    if (kind !== "queue")
      return h("div.small-panel", head, h("canvas", { "aria-hidden": "true", "data-panel": kind }));
    const theme = this.host.theme();
    const names = frame.waiting.slice(0, MOST_NAMES).map((id) => {
      const isLit = scene.requests.includes(id);
      const lane = model.laneOf(id, frame.step);
      const swatch = h("i", { "aria-hidden": "true", ...swatchOf(theme, isLit ? lane : null) });
      const name = model.requestSpan(id).name;
      return h(
        "span.together",
        { class: isLit ? "together" : "together muted" },
        swatch,
        isLit ? h("strong", name) : name,
      );
    });
    const left = frame.waiting.length - names.length;
    return h(
      "div.small-panel",
      head,
      h("p.names.flow", ...names, left > 0 && h("span.muted", `and ${left} more`)),
    );
  }

  /** What a small picture shows, and its figures. */
  #heading(kind: PanelKind, model: Model): [title: string, words: string] {
    const { step, requests } = this.scene;
    const frame = model.frame(step ?? model.firstStep);
    const { unshared, shared, cached, free } = frame.counts;
    if (kind === "queue") return ["Waiting", `after step ${frame.step}: ${frame.waitingCount}`];
    if (kind === "blocks")
      return [
        "Blocks",
        `after step ${frame.step}: ${unshared + shared} used, ${cached} cached, ${free} free`,
      ];
    if (kind === "time" && model.request(requests[0])) {
      const { total } = model.waterfall.of(requests[0]);
      return [owned(model.requestSpan(requests[0]).name), timeWords(total, model.waterfall.unit)];
    }
    return ["Lanes", `around step ${frame.step}`];
  }

  #drawSmall(canvas: HTMLCanvasElement, unit: number) {
    const { scene, host } = this;
    const kind = canvas.dataset.panel as PanelKind;
    const width = (canvas.parentElement as HTMLElement).clientWidth / unit;
    const place = { host, scene, width, small: true };
    const height = heightOf(kind, { ...place, height: 0 }, width) || 120;
    const painter = new LitPainter(canvas).begin(width, height, unit, host.theme()) as LitPainter;
    drawPanel(kind, { ...place, painter, height });
  }
}

/** The theme of what is saved and printed. */
export const PAPER = THEMES.light;
