/** A lesson's page: boards at once, questions before answers, and cells that run. */

import { type CellState, cellsToRun, hasRun, isChanged } from "./cells.ts";
import { type Condition, Kernel, StoppedError } from "./kernel.ts";
import { OutputArea } from "./outputs.ts";
import { Questions } from "./questions.ts";
import { StepLinks } from "./step_links.ts";

type State = "" | "waiting" | "running" | "done" | "failed";

/** A code cell of the page. */
class Cell implements CellState {
  element: HTMLElement;
  number: number;
  runsHere: boolean;
  code: HTMLElement;
  original: string;
  source: string;
  ran: string | null = null;
  editor: { reset: (source: string) => void } | null = null;
  runButton: HTMLButtonElement | null;
  resetButton: HTMLButtonElement | null;
  words: Element | null;
  out: OutputArea;

  constructor(element: HTMLElement, questions: Questions) {
    this.element = element;
    this.number = Number(element.dataset.cell);
    this.runsHere = element.dataset.runs === "true";
    this.code = element.querySelector(".code") as HTMLElement;
    this.original = this.source = this.code.textContent ?? "";
    this.runButton = element.querySelector(".run") as HTMLButtonElement | null;
    this.resetButton = element.querySelector(".reset") as HTMLButtonElement | null;
    this.words = element.querySelector(".bar .words");
    const scene = element.closest(".scene") as HTMLElement | null;
    const isPicture = element.classList.contains("picture");
    this.out = new OutputArea(element.querySelector(".out") as HTMLElement, {
      figure: element.dataset.figure,
      onReveal: (place, key) => questions.revealIn(place, key),
      follower: scene && isPicture ? new StepLinks(scene, element.id) : undefined,
    });
  }

  set(state: State, words: string = "") {
    this.element.dataset.state = state;
    if (this.words) this.words.textContent = words;
  }
}

const answers = document.querySelector("#replies")?.textContent ?? "{}";
const questions = new Questions(JSON.parse(answers));
const found: NodeListOf<HTMLElement> = document.querySelectorAll(".cell[data-cell]");
const cells = [...found].map((element) => new Cell(element, questions));

const status = document.querySelector("#python") as HTMLElement;
const statusWords = status.querySelector(".words") as HTMLElement;
const stopButton = status.querySelector("button") as HTMLButtonElement;

const kernel = new Kernel({ onPhase: showPhase });
stopButton.addEventListener("click", () => kernel.stop());

function showPhase(phase: Condition) {
  status.hidden = false;
  status.dataset.phase = phase.phase;
  const size = "bytes" in phase && phase.bytes ? `, ${(phase.bytes / 1e6).toFixed(1)} MB once` : "";
  statusWords.textContent = {
    python: `Loading Python${size}`,
    core: "Loading Underglass",
    model: `Loading the model${size}`,
    ready: "Python runs in this page",
    off: "Python has stopped; cells run again from the top",
    broken: "why" in phase ? `Python cannot be started: ${phase.why}` : "",
  }[phase.phase];
  stopButton.hidden = phase.phase === "off" || phase.phase === "broken";
  if (!stopButton.hidden) return;
  for (const cell of cells) cell.ran = null;
}

/** One run at a time. */
let running: Promise<unknown> = Promise.resolve();

/** Runs a cell, and first those before it that have to. */
function run(target: Cell) {
  target.set("waiting", "Waiting");
  running = running.then(() => runUpTo(target)).catch((error) => fail(target, error));
  return running;
}

async function runUpTo(target: Cell) {
  const changed = isChanged(cells);
  for (const cell of cellsToRun(cells, target)) {
    const ok = await runOne(cell, cell === target || changed, changed);
    if (!ok && cell.runsHere) {
      if (cell !== target) target.set("failed", "A cell above has failed.");
      break;
    }
  }
  if (!changed) return;
  const at = cells.indexOf(target);
  for (const later of cells.slice(at + 1)) later.element.dataset.stale = "true";
}

async function runOne(cell: Cell, isShown: boolean, changed: boolean) {
  const draws = isShown && cell.runsHere;
  if (cell.runsHere) cell.set("running", "Running");
  let isClear = false;
  const clear = () => {
    if (!isClear) cell.out.clear();
    isClear = true;
    delete cell.element.dataset.stale;
  };
  const task = { cell: cell.number, source: cell.source, isChanged: changed };
  const { ok, ms } = await kernel
    .run(task, (output) => {
      if (!draws && !(output.kind === "error" && cell.runsHere)) return;
      clear();
      cell.out.add(output);
    })
    .catch((error) => {
      fail(cell, error);
      throw error;
    });
  if (draws) clear();
  hasRun(cells, cell);
  if (!ok) cell.ran = null;
  if (cell.runsHere) {
    cell.set(ok ? "done" : "failed", ok ? timeWords(ms) : "");
    cell.element.dataset.count = `${Number(cell.element.dataset.count ?? 0) + 1}`;
  }
  return ok;
}

function fail(cell: Cell, error: unknown) {
  const stopped = error instanceof StoppedError;
  cell.set(stopped ? "" : "failed", stopped ? "Stopped" : "");
}

const timeWords = (ms: number) =>
  ms < 950 ? `${Math.max(1, Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;

async function edit(cell: Cell) {
  if (cell.editor || cell.element.dataset.opening) return;
  cell.element.dataset.opening = "true";
  const { openEditor } = await import("./editor.ts");
  const resetButton = cell.resetButton as HTMLButtonElement;
  cell.editor = openEditor(cell.code, {
    label: `Code of cell ${cell.number}`,
    onChange: (source) => {
      cell.source = source;
      resetButton.hidden = source === cell.original;
    },
    onRun: () => run(cell),
  });
}

for (const cell of cells) {
  if (!cell.runsHere) continue;
  const { runButton, resetButton, code } = cell;
  runButton?.addEventListener("click", () => run(cell));
  // Loading Python takes seconds; a reader who points at the button will need it.
  for (const event of ["pointerenter", "focus"])
    runButton?.addEventListener(event, () => kernel.start(), { once: true });
  resetButton?.addEventListener("click", () => {
    cell.editor?.reset(cell.original);
    run(cell);
  });
  code.addEventListener("click", () => edit(cell));
  code.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.shiftKey || event.ctrlKey)) run(cell);
    else if (event.key === "Enter") edit(cell);
    else return;
    event.preventDefault();
  });
}
// A link to a moment names its cell, and then the moment: see `outputs.ts`.
const [place, moment] = location.hash.slice(1).split(/&(.*)/s);
if (moment) document.getElementById(place)?.scrollIntoView();
document.documentElement.dataset.ready = "true";
