/** The page: the field, the picture that grows, and five scenes. */

import { say } from "../drawing/html.ts";
import { piecesOf } from "../host/log_bytes.ts";
import { plain, type Span } from "../model/words.ts";
import { writeChoices } from "./choice_buttons.ts";
import { type Choice, choicesOf, consequence } from "./choices.ts";
import { Engine, savesData, startWhenIdle } from "./engine.ts";
import { holdStep, isHoldKnown } from "./facts.ts";
import { firstInView, type Layout, layoutOf } from "./layout.ts";
import { overview } from "./overview.ts";
import { described, picture, type Shown } from "./picture.ts";
import { PACE, Run } from "./run.ts";
import { heading, stepOf, told } from "./scenes.ts";
import { starting, type Told } from "./sentences.ts";
import { draw } from "./shapes.ts";
import { spell } from "./spelling.ts";
import { LAST, sectionOf, Way } from "./way.ts";
import { WhereItWent } from "./where_it_went.ts";

const FIRST = 6; // steps that Ada and Bo have had when the page opens; as in page_front.py
const MOST = 40; // recorded steps, which end soon afterwards

/** idle: nobody has asked; starting: the engine is; running: steps come; held: the first scene's step is reached. */
type State = "idle" | "starting" | "running" | "held" | "broken";

interface Ghost {
  choice: number;
  after: Run | null; // null: it is being computed, or it cannot be
  words: Span[];
}

export class Story {
  root: HTMLElement;
  state: State = "idle";
  scene = 1;
  engine = new Engine();
  recorded: Run | null = null;
  run = new Run();
  now = FIRST;
  /** The step in view and the time when the visitor asked, while the engine was starting. */
  asked: { step: number; at: number } | null = null;
  engineUs = 0;
  ghosts: Map<number, Ghost> = new Map();
  /** The log of the run, in pieces. */
  lines: Uint8Array[] = [];
  #layout: Layout = layoutOf(1240, 24);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asks = 0;
  #shownAt = 0;
  #hasPressed = false;
  #blocks = 0;
  /** What the scenes say before there is a run, to say it again when the visitor asks again. */
  #general: [element: Element, words: string][];
  #end: WhereItWent;
  #way: Way;
  #svg: SVGElement;
  #spoken: HTMLElement;
  #prefersStill = matchMedia("(prefers-reduced-motion: reduce)");

  constructor(root: HTMLElement) {
    this.root = root;
    this.#svg = root.querySelector("svg") as SVGElement;
    this.#spoken = document.querySelector(".spoken") as HTMLElement;
    const parts = root.querySelectorAll(".scene:not(#scene-1) :is(h2, .what, .why)");
    this.#general = [...parts].map((element) => [element, element.textContent ?? ""]);
    const form = root.querySelector("form") as HTMLFormElement;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go(1);
      this.#hasPressed = true;
      this.ask();
    });
    for (const event of ["focusin", "pointerdown"])
      form.addEventListener(event, () => this.engine.start().catch(() => {}), { once: true });
    this.#end = new WhereItWent(
      (scene) => this.go(scene, true),
      (settings) => this.engine.change(settings),
    );
    this.#way = new Way(root, (scene) => this.go(scene, true));
    new ResizeObserver(() => requestAnimationFrame(() => this.#resized())).observe(
      this.#svg.parentElement as Element,
    );
    addEventListener("scroll", () => this.#enter(this.#way.inSight), { passive: true });
    document.addEventListener("keydown", (event) => this.#pressed(event));
    this.#load(root.dataset.log ?? "");
  }

  async #load(url: string) {
    const answer = await fetch(url);
    const run = new Run();
    run.isRecorded = true;
    for await (const { bytes } of piecesOf(await answer.arrayBuffer())) run.read(bytes);
    this.recorded = run;
    this.#resized();
    startWhenIdle(this.engine);
  }

  get #prompt() {
    return (this.root.querySelector("form input") as HTMLInputElement).value;
  }

  /** The visitor asks: at once if the engine is ready; until then the others' recorded lanes move. */
  async ask() {
    const mine = ++this.#asks;
    clearTimeout(this.#timer);
    this.ghosts.clear();
    this.run = new Run();
    for (const [element, words] of this.#general) say(element, words);
    for (const scene of [1, 2, 3, 4]) this.#writeChoices(scene);
    this.#end.clear();
    this.engineUs = 0;
    say(this.root.querySelector(".ask button") as Element, "Ask again");
    if (!this.engine.isReady || !this.recorded) {
      this.now = FIRST;
      this.asked = { step: FIRST + 1, at: performance.now() };
      this.#set("starting");
      this.#advance();
      try {
        await this.engine.start();
      } catch (error) {
        return this.#broken(error as Error);
      }
      if (mine !== this.#asks) return;
      this.engineUs = 1000 * (performance.now() - this.asked.at);
    } else {
      this.now = FIRST;
      this.#set("running");
    }
    const after = Math.max(FIRST, this.now);
    this.now = after;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const run = this.run;
    const log: Uint8Array[] = [];
    this.lines = log;
    try {
      await this.engine.ask({
        prompt: this.#prompt,
        after,
        onSteps: (lines) => {
          run.read(lines);
          log.push(lines);
          if (mine === this.#asks && run.lastStep > after) this.#stepsCame();
        },
      });
    } catch (error) {
      return this.#broken(error as Error);
    }
    if (mine !== this.#asks) return;
    run.isOver = true;
    this.#stepsCame();
    this.#render();
  }

  #stepsCame() {
    if (this.state !== "running" && this.state !== "held") {
      this.asked = null;
      this.#set("running");
    }
    if (this.#timer === undefined && this.state === "running") this.#advanceIn(this.#pace);
  }

  #broken(error: Error) {
    this.#set("broken");
    clearTimeout(this.#timer);
    this.root.dataset.error = error.message;
    this.#tell(1, {
      what: [{ text: `The engine cannot start in this browser: ${error.message}` }],
      why: [{ text: "The lessons below show the same with stored pictures." }],
    });
  }

  /** The step at which the first scene stops. */
  get #target() {
    if (this.state !== "running") return MOST;
    return isHoldKnown(this.run) ? holdStep(this.run) : this.run.lastStep;
  }

  /** The time of a column: shorter until the visitor, who waits, has a token. */
  get #pace() {
    if (this.#prefersStill.matches) return 0;
    return this.now < (this.run.you?.tokenSteps[0] ?? Infinity) ? PACE / 2 : PACE;
  }

  /** Shows the next step, so long after the last one. */
  #advanceIn(time: number) {
    clearTimeout(this.#timer);
    const left = time - (performance.now() - this.#shownAt);
    this.#timer = setTimeout(() => this.#advance(), Math.max(0, left));
  }

  /** Shows the next step, and the one after it a moment later. */
  #advance() {
    this.#timer = undefined;
    this.#shownAt = performance.now();
    const { run } = this;
    const isStill = this.#prefersStill.matches && this.state === "starting";
    if (this.now < this.#target && !isStill) {
      this.now++;
      this.#render();
    }
    if (this.state === "starting") {
      this.#render(); // the wait, which grows
      return this.#advanceIn(this.now < MOST / 2 ? PACE : 2 * PACE);
    }
    if (isHoldKnown(run) && this.now >= this.#target) {
      this.#set("held");
      this.#render();
      this.#speak();
    } else if (this.now < run.lastStep) this.#advanceIn(this.#pace);
  }

  #set(state: State) {
    this.state = state;
    this.root.dataset.state = state;
  }

  /** Goes to a scene. */
  go(scene: number, isFocused = false) {
    this.#way.scrollTo(scene);
    if (scene > 1 && this.state === "idle") this.ask();
    this.#enter(scene);
    if (isFocused) sectionOf(scene).querySelector("h2")?.focus({ preventScroll: true });
  }

  #enter(scene: number) {
    if (scene === this.scene) return;
    this.scene = scene;
    this.root.dataset.scene = `${scene}`;
    // A visitor who goes on without asking sees the story of the prompt in the field.
    if (scene > 1 && scene < LAST && this.state === "idle" && !savesData()) this.ask();
    this.#render();
    this.#speak();
  }

  #pressed(event: KeyboardEvent) {
    const { key } = event;
    const target = event.target as HTMLElement;
    if (event.altKey || event.ctrlKey || event.metaKey || target.closest("input, .underglass"))
      return;
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1 };
    if (key in steps) {
      const next = this.scene + steps[key];
      if (next < 1 || next > LAST) return;
      event.preventDefault();
      this.go(next);
    } else if (["1", "2", "3"].includes(key)) this.#choose(this.scene, Number(key) - 1);
    else if (key === "Escape" && this.ghosts.delete(this.scene)) this.#render();
  }

  // Choices

  async #choose(scene: number, index: number) {
    if (scene === LAST) return this.#end.choose(index);
    const choice = this.#choices(scene)[index];
    if (!choice) return;
    if (this.ghosts.get(scene)?.choice === index) {
      this.ghosts.delete(scene);
      return this.#render();
    }
    const ghost: Ghost = {
      choice: index,
      after: null,
      words: [{ text: "The scheduler runs again." }],
    };
    this.ghosts.set(scene, ghost);
    this.#render();
    try {
      const { before, after } = await this.engine.change(choice.settings);
      ghost.after = after;
      ghost.words = consequence(before, after);
    } catch (error) {
      ghost.words = [{ text: `This cannot be served: ${(error as Error).message}` }];
    }
    this.#render();
    if (this.ghosts.get(scene) === ghost) say(this.#spoken, plain(ghost.words));
  }

  #choices(scene: number): Choice[] {
    return this.run.isOver && scene < LAST ? choicesOf(this.run, scene) : [];
  }

  // Drawing

  #resized() {
    const box = this.#svg.parentElement as HTMLElement;
    const { run } = this.#shown();
    const blocks = run.model.settings?.num_blocks ?? 24;
    const height = this.#way.isPinned ? box.clientHeight : null;
    this.#layout = layoutOf(box.clientWidth, blocks, height);
    this.root.style.setProperty("--picture", `${this.#layout.height + 24}px`);
    this.#render();
  }

  /** What the picture shows: the recorded run until real steps come. */
  #shown(): Shown {
    const isReal = this.state === "running" || this.state === "held";
    if (!isReal || !this.run.model.stepCount) {
      const { asked } = this;
      const waiting = asked && { step: asked.step, us: 1000 * (performance.now() - asked.at) };
      return {
        run: this.recorded ?? this.run,
        now: Math.min(this.now, this.recorded?.lastStep ?? this.now),
        scene: 1,
        hasPressed: this.#hasPressed,
        ...(waiting ? { starting: waiting } : {}),
      };
    }
    const { run } = this;
    const isOpen = this.scene > 1 && this.scene < LAST && run.isOver;
    const now = isOpen ? stepOf(run, this.scene) : this.now;
    return { run, now, scene: isOpen ? this.scene : 1, hasPressed: this.#hasPressed };
  }

  #render() {
    const shown = this.#shown();
    if (!shown.run.model.stepCount) return;
    const blocks = shown.run.model.settings.num_blocks;
    if (blocks !== this.#blocks) {
      this.#blocks = blocks;
      this.#resized();
      return;
    }
    const layout = this.#layout;
    shown.first = this.#firstOf(shown);
    const ghost = this.ghosts.get(this.scene);
    const sheet = ghost?.after ? overview(shown, ghost.after, layout) : picture(shown, layout);
    this.#svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    this.#svg.setAttribute("height", `${layout.height}`);
    this.#svg.setAttribute("aria-label", described(shown));
    draw(this.#svg, sheet.shapes);
    this.#write(shown);
  }

  /** The window of the first scene, as long as the step is in it. */
  #firstOf({ run, now, scene }: Shown) {
    if (scene === 1) return firstInView(this.#layout, now);
    if (scene === 4) return firstInView(this.#layout, now + (this.#layout.isNarrow ? 1 : 2));
    const first = firstInView(this.#layout, stepOf(run, 1));
    return first <= now - 2 ? first : firstInView(this.#layout, now);
  }

  #write(shown: Shown) {
    const { run } = shown;
    const you = run.you;
    Object.assign(this.root.dataset, {
      step: `${shown.now}`,
      written: `${you && !shown.starting ? run.written(you, shown.now) : 0}`,
      recorded: `${run.isRecorded}`,
    });
    this.#way.mark(this.scene);
    const scenes = this.run.isOver ? [1, 2, 3, 4] : [1];
    for (const scene of scenes) {
      if (this.state === "broken") break;
      const words = this.#told(scene, shown);
      this.#tell(scene, words);
      this.#writeChoices(scene);
    }
    if (this.run.isOver) this.#end.show(this.run, this.engineUs, this.lines);
  }

  #told(scene: number, shown: Shown): Told {
    if (shown.starting) {
      const others = shown.run.model.requests.filter((one) => shown.run.cell(one, shown.now));
      return starting(shown.starting.us, others);
    }
    const now =
      scene === 1 ? (this.state === "held" ? this.now : shown.now) : stepOf(this.run, scene);
    return told(scene === 1 ? shown.run : this.run, scene, now, this.engineUs, this.#pace);
  }

  #tell(scene: number, { what, why }: Told) {
    const section = sectionOf(scene);
    const title = this.run.isOver && heading(this.run, scene);
    if (title) say(section.querySelector("h2") as Element, title);
    spell(section.querySelector(".what") as HTMLElement, what, this.run);
    spell(section.querySelector(".why") as HTMLElement, why, this.run);
  }

  #writeChoices(scene: number) {
    const place = sectionOf(scene).querySelector(".choices") as HTMLElement;
    const ghost = this.ghosts.get(scene);
    writeChoices(place, this.#choices(scene), ghost?.choice, (index) => this.#choose(scene, index));
    if (ghost) spell(place.querySelector(".consequence") as HTMLElement, ghost.words, this.run);
  }

  /** Says the scene to a screen reader. */
  #speak() {
    const section = sectionOf(this.scene);
    const heading = section.querySelector("h1, h2")?.textContent ?? "";
    const words = [...section.querySelectorAll(".head .what, .head .why")].map(
      (one) => one.textContent,
    );
    say(this.#spoken, [`Scene ${this.scene} of ${LAST}: ${heading}.`, ...words].join(" "));
  }
}
