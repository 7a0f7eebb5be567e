/** The playground: a changed setting runs the workload again. The run before stays, one click away. */

import type { Board } from "../board/board.ts";
import { fetchBytes } from "../host/log_bytes.ts";
import { mount } from "../host/widget.ts";
import { drawPageBoard, one } from "./boards.ts";

const CALM = 200; // ms without a change before a run starts

const form = document.querySelector("form.settings") as HTMLFormElement;
const status = one("#status");
const which = one("#which");
const [here, there] = [...document.querySelectorAll("main > .board")] as HTMLElement[];

let board: Board | undefined = await drawPageBoard(here, await fetchBytes(here.dataset.log ?? ""));
let ends = [new AbortController(), new AbortController()];
let shown = settings();

/** The settings in the form, as JSON. */
function settings() {
  const values: Record<string, unknown> = {};
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
    const input = output.previousElementSibling as HTMLInputElement;
    output.value = input.value;
  }
}

function tell(words: string, role: "status" | "alert" = "status") {
  status.textContent = words;
  status.setAttribute("role", role);
}

function choose(run: "now" | "before") {
  here.hidden = run === "before";
  there.hidden = run === "now";
  for (const button of which.querySelectorAll("button"))
    button.setAttribute("aria-pressed", `${button.dataset.run === run}`);
}

/** Runs with the settings of the form, until they stay the same. */
async function run() {
  const { runPython } = await import("./page_kernel.ts");
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
      await draw(log as Uint8Array, before as Uint8Array);
    } catch (error) {
      tell(`${(error as Error).message} The last run is still shown.`, "alert");
    }
  }
}

/** Draws both runs at the step and with the selection of the board. */
async function draw(log: Uint8Array, before: Uint8Array) {
  const { step, selected } = board?.state() ?? {};
  for (const end of ends) end.abort();
  ends = [new AbortController(), new AbortController()];
  board?.root.remove();
  which.hidden = false;
  choose("now");
  board = await drawPageBoard(here, log, { step, selected, signal: ends[0].signal });
  await mount(there, { log: before, step, selected, address: false, signal: ends[1].signal });
}

let running: Promise<void> | null = null;
let timer: number | undefined;
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
  const { run } = (target as HTMLElement).dataset;
  if (run === "now" || run === "before") choose(run);
});
