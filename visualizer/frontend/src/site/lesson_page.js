/** A lesson's page: boards at once, questions before answers, and cells that run. */

/** @import { CellState } from "./cells.js" */
/** @import { Phase } from "./worker.js" */
import { cellsToRun, hasRun, isChanged } from "./cells.js";
import { Kernel, StoppedError } from "./kernel.js";
import { OutputArea } from "./outputs.js";
import { Questions } from "./questions.js";

/** @typedef {"" | "waiting" | "running" | "done" | "failed"} State */

/** A code cell of the page. @implements {CellState} */
class Cell {
  /** @param {HTMLElement} element @param {Questions} questions */
  constructor(element, questions) {
    this.element = element;
    this.number = Number(element.dataset.cell);
    this.runsHere = element.dataset.runs === "true";
    this.code = /** @type {HTMLElement} */ (element.querySelector(".code"));
    this.original = this.source = this.code.textContent ?? "";
    /** @type {string | null} */
    this.ran = null;
    /** @type {{reset: (source: string) => void} | null} */
    this.editor = null;
    this.runButton = /** @type {HTMLButtonElement | null} */ (element.querySelector(".run"));
    this.resetButton = /** @type {HTMLButtonElement | null} */ (element.querySelector(".reset"));
    this.words = element.querySelector(".bar .words");
    this.out = new OutputArea(/** @type {HTMLElement} */ (element.querySelector(".out")), {
      figure: element.dataset.figure,
      onReveal: (place, key) => questions.revealIn(place, key),
    });
  }

  /** @param {State} state @param {string} [words] */
  set(state, words = "") {
    this.element.dataset.state = state;
    if (this.words) this.words.textContent = words;
  }
}

const answers = document.querySelector("#replies")?.textContent ?? "{}";
const questions = new Questions(document, JSON.parse(answers));
/** @type {NodeListOf<HTMLElement>} */
const found = document.querySelectorAll(".cell[data-cell]");
const cells = [...found].map((element) => new Cell(element, questions));

const status = /** @type {HTMLElement} */ (document.querySelector("#python"));
const statusWords = /** @type {HTMLElement} */ (status.querySelector(".words"));
const stopButton = /** @type {HTMLButtonElement} */ (status.querySelector("button"));

const kernel = new Kernel({
  newWorker: () => new Worker(new URL("./worker.js", import.meta.url), { type: "module" }),
  onPhase: showPhase,
});
stopButton.addEventListener("click", () => kernel.stop());

/** @param {Phase | {phase: "off"} | {phase: "broken", why: string}} phase */
function showPhase(phase) {
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

/** One run at a time. @type {Promise<unknown>} */
let running = Promise.resolve();

/** Runs a cell, and first those before it that have to. @param {Cell} target */
function run(target) {
  target.set("waiting", "Waiting");
  running = running.then(() => runUpTo(target)).catch((error) => fail(target, error));
  return running;
}

/** @param {Cell} target */
async function runUpTo(target) {
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

/** @param {Cell} cell @param {boolean} isShown @param {boolean} changed */
async function runOne(cell, isShown, changed) {
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

/** @param {Cell} cell @param {unknown} error */
function fail(cell, error) {
  const stopped = error instanceof StoppedError;
  cell.set(stopped ? "" : "failed", stopped ? "Stopped" : "");
}

/** @param {number} ms */
const timeWords = (ms) =>
  ms < 950 ? `${Math.max(1, Math.round(ms))} ms` : `${(ms / 1000).toFixed(1)} s`;

/** @param {Cell} cell */
async function edit(cell) {
  if (cell.editor || cell.element.dataset.opening) return;
  cell.element.dataset.opening = "true";
  const { openEditor } = await import("./editor.js");
  const resetButton = /** @type {HTMLButtonElement} */ (cell.resetButton);
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
// A link to a moment names its cell, and then the moment: see `outputs.js`.
const [place, moment] = location.hash.slice(1).split(/&(.*)/s);
if (moment) document.getElementById(place)?.scrollIntoView();
document.documentElement.dataset.ready = "true";
