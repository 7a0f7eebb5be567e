/** The playground: a changed setting runs the workload again. The run before stays, one click away. */

/** @import { Board } from "../board/board.js" */
import { mount } from "../host/widget.js";
import { drawPageBoard, fetchBytes, one } from "./boards.js";

const CALM = 200; // ms without a change before a run starts

const form = /** @type {HTMLFormElement} */ (document.querySelector("form.settings"));
const status = one("#status");
const which = one("#which");
const [here, there] = /** @type {HTMLElement[]} */ ([
  ...document.querySelectorAll("main > .board"),
]);

/** @type {Board | undefined} */
let board = await drawPageBoard(here, await fetchBytes(here.dataset.log ?? ""));
let ends = [new AbortController(), new AbortController()];
let shown = settings();

/** The settings in the form, as JSON. */
function settings() {
  /** @type {Record<string, unknown>} */
  const values = {};
  for (const field of form.elements) {
    if (field instanceof HTMLSelectElement) values[field.name] = JSON.parse(field.value);
    else if (field instanceof HTMLInputElement)
      values[field.name] = field.type === "checkbox" ? field.checked : Number(field.value);
  }
  return JSON.stringify(values);
}

/** Writes the value beside each slider. */
function writeValues() {
  for (const output of form.querySelectorAll("output")) {
    const input = /** @type {HTMLInputElement} */ (output.previousElementSibling);
    output.value = input.value;
  }
}

/** @param {string} words @param {"status" | "alert"} [role] */
function tell(words, role = "status") {
  status.textContent = words;
  status.setAttribute("role", role);
}

/** @param {"now" | "before"} run */
function choose(run) {
  here.hidden = run === "before";
  there.hidden = run === "now";
  for (const button of which.querySelectorAll("button"))
    button.setAttribute("aria-pressed", `${button.dataset.run === run}`);
}

/** Runs with the settings of the form, until they stay the same. */
async function run() {
  const { runPython } = await import("./page_kernel.js");
  for (let asked = settings(); asked !== shown; asked = settings()) {
    shown = asked;
    tell("Running");
    const source = `
from page_play import playground
playground.change(${JSON.stringify(asked)})
`;
    try {
      const { text = "", html = "", log, before } = await runPython(source, { onPhase: tell });
      tell(text);
      one("#numbers").innerHTML = html;
      await draw(/** @type {Uint8Array} */ (log), /** @type {Uint8Array} */ (before));
    } catch (error) {
      tell(`${/** @type {Error} */ (error).message} The last run is still shown.`, "alert");
    }
  }
}

/** Draws both runs at the step and with the selection of the board. @param {Uint8Array} log @param {Uint8Array} before */
async function draw(log, before) {
  const { step, selected } = board?.state() ?? {};
  for (const end of ends) end.abort();
  ends = [new AbortController(), new AbortController()];
  board?.root.remove();
  which.hidden = false;
  choose("now");
  board = await drawPageBoard(here, log, { step, selected, signal: ends[0].signal });
  await mount(there, { log: before, step, selected, address: false, signal: ends[1].signal });
}

/** @type {Promise<void> | null} */
let running = null;
/** @type {number | undefined} */
let timer;
function changed() {
  writeValues();
  clearTimeout(timer);
  timer = setTimeout(() => {
    running ??= run().finally(() => (running = null));
  }, CALM);
}

form.addEventListener("input", changed);
form.addEventListener("reset", () => setTimeout(changed)); // the fields are reset after the event
form.addEventListener("submit", (event) => event.preventDefault());
which.addEventListener("click", ({ target }) => {
  const { run } = /** @type {HTMLElement} */ (target).dataset;
  if (run === "now" || run === "before") choose(run);
});
