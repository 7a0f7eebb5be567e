/**
 * The live page: the board over this server's event feed, the teacher's controls, the join card and the prompt
 * box. On a phone it first shows what happens to one's own request.
 *
 * One connection, `GET /events`, delivers everything that the page shows of the engine; there is no polling.
 * If the server has a key, the page asks the user for it and keeps it until the tab is closed. With
 * `--model auto`, `/?model=NAME` shows one model; without a name, the first.
 */

import { seatBehind } from "../../visualizer/frontend/src/board/seat.ts";
import { h } from "../../visualizer/frontend/src/drawing/html.ts";
import { type ServerStatus, setText } from "../../visualizer/frontend/src/live/live.ts";
import type { LiveBoard } from "../../visualizer/frontend/src/live/live_board.ts";
import { OwnRequest } from "../../visualizer/frontend/src/live/own_request.ts";
import { ProjectorView } from "../../visualizer/frontend/src/live/projector.ts";
import { watch } from "../../visualizer/frontend/src/live/watch.ts";
import type { Model } from "../../visualizer/frontend/src/model/index.ts";
import { Controls } from "./controls.ts";
import { JoinCard } from "./join.ts";
import { ask, askForKey, byId, headers, posting, type Send, tell } from "./page.ts";
import { Prompts } from "./prompts.ts";
import { Comparison, Restart } from "./restart.ts";

const PROJECTOR = "underglass projector";
const phone = matchMedia("(max-width: 719px)");
const model = new URLSearchParams(location.search).get("model");
const query = model ? `?${new URLSearchParams({ model })}` : "";
const number = (value: number) => value.toLocaleString("en");

let ending: AbortController | null = null;
let view: ReturnType<typeof watch>;
let isTelling = false; // the server, what the projector's screen shows
let notLoaded = ""; // why there is no log to draw yet
const own = new OwnRequest(byId("me"));
let stage: ProjectorView | null = null; // the projector's view, once it is chosen
/** Posts a command of the teacher's; returns the answer, or null and says why. */
const control: Send = (verb, body) => ask(`/engine/${verb}${query}`, "server", posting(body));
const join = new JoinCard();
const controls = new Controls(control);
const restart = new Restart(control);
const comparison = new Comparison(() => ask(`/compare${query}`, "server"));
const prompts = new Prompts({
  form: byId<HTMLFormElement>("prompt"),
  list: byId("streams"),
  model,
  headers,
  select: (id) => view.board.restore({ selected: id }),
});

function open() {
  ending?.abort();
  ending = new AbortController();
  byId("unlock").hidden = true;
  view = watch(byId("board"), {
    url: `/events${query}`,
    seat: seatBehind(`/seat${query}`, "/board/seat.js", headers),
    headers,
    past: true,
    onChange: update,
    signal: ending.signal,
  });
  showModels();
  join.load(headers()).then(() => update(view.live));
  project(!!localStorage.getItem(PROJECTOR) && !phone.matches);
}

/** Updates the page after a change of the log, the server's state or the connection. */
function update(live: LiveBoard) {
  const { status, board } = live;
  const { live: state } = board.root.dataset;
  const connected = state === "live" || state === "over";
  byId("unlock").hidden = state !== "refused" || !!status.run;
  controls.update(live, connected);
  restart.update(live, connected);
  comparison.update(live);
  join.update({
    isEmpty: !!status.run && !live.model?.stepCount && !phone.matches,
    hasKey: !!status.key,
  });
  setText(byId("server"), describe(status, live.model?.settings));
  tell("held", describeHeld(status));
  tell("trace-error", describeTrace(status));
  setText(byId("privacy"), describePrivacy(status));
  prompts.show(status, () => live);
  if (phone.matches) own.show(live, live.shows ? prompts.request : null);
  if (stage && !byId("stage").hidden) {
    stage.show(live);
    setText(byId("joined"), describeJoined(live));
    tellScreen(live);
  }
}

/** Tells the phones which earlier step this screen looks back at, until the server has said that it knows. */
async function tellScreen({ shows, following, status, board }: LiveBoard) {
  const step = shows && !following ? board.store.step : null;
  if (isTelling || !status.controls || step === status.screen) return;
  isTelling = true;
  await control("screen", { step });
  isTelling = false;
}

/** How many people have sent a prompt, and how many requests are live. */
function describeJoined({ model, shows }: LiveBoard) {
  if (!shows || !model) return "";
  const people = new Set(model.requests.map(({ label, name }) => label || name)).size;
  const live = model.requests.filter(({ finished }) => !finished).length;
  const words = `${people} ${people === 1 ? "person has" : "people have"} joined`;
  return `${words}, ${live} ${live === 1 ? "request is" : "requests are"} live`;
}

/** The prompts that are held back, by name if the log has names. */
function describeHeld({ holding, held = [] }: ServerStatus) {
  if (!holding) return "";
  if (!held.length) return "Prompts are held: they wait here and start together.";
  const names = held.filter(Boolean).slice(0, 12).join(", ");
  const count = `${held.length} prompt${held.length === 1 ? " is" : "s are"} held`;
  return names ? `${count}: ${names}${held.length > 12 ? " …" : ""}` : count;
}

/** Why the teacher's file of the run ends here. */
const describeTrace = ({ trace_error: reason, controls: may }: ServerStatus) =>
  reason && may !== false
    ? `The engine goes on, but ${reason}. Save the run from /trace before the server ends.`
    : "";

function describePrivacy({ run, trace_text: text, key }: ServerStatus) {
  if (!run) return "";
  if (text === "off")
    return "Neither the page nor the log shows names or texts. They cross the network unencrypted.";
  const seen =
    "Everybody here sees your name and text, and the teacher's file keeps them. Use a nickname; write nothing private.";
  const open = "Without a key, everybody on the network can read what is sent.";
  return key || !join.isOpen ? seen : `${seen} ${open}`;
}

/** Show links to the models of a server that has several. */
async function showModels() {
  const answer = await fetch("/v1/models", { headers: headers() }).catch(() => null);
  if (!answer?.ok) return;
  const models: { id: string; loaded?: boolean }[] = (await answer.json()).data;
  const names = models.map(({ id }) => id);
  const shown = models.find(({ id }) => id === model);
  if (shown?.loaded === false) notLoaded = `${model} is not loaded. Send it a prompt to load it.`;
  if (names.length > 1 && model && !shown) notLoaded = `This server has no model ${model}.`;
  update(view.live);
  byId("models").hidden = names.length < 2;
  byId("models").replaceChildren(
    ...names.map((name, at) => {
      const href = at ? `/?${new URLSearchParams({ model: name })}` : "/";
      const isThis = name === (model ?? names[0]);
      return h("a.muted", { href, "aria-current": isThis && "page" }, name);
    }),
  );
}

/** The server in one line: its model, its settings, and why it cannot be paused from here. */
function describe({ model, controls }: ServerStatus, settings?: Model["settings"]) {
  if (!settings?.num_blocks) return notLoaded;
  const {
    token_budget: budget,
    max_batch_size: batch,
    num_blocks: blocks,
    block_size: size,
  } = settings;
  const parts = [
    model,
    `${number(budget)} tokens per step`,
    `${number(batch)} seats`,
    `${number(blocks)} blocks of ${size}`,
    settings.policy,
  ];
  if (controls === false) parts.push("can be paused only from its own machine, or with a key");
  return parts.join(" · ");
}

/** Shows the projector's view or the board; the browser remembers it, because it belongs to this screen. */
function project(on: boolean) {
  byId("projector").setAttribute("aria-pressed", String(on));
  setText(byId("projector"), on ? "Leave the projector's view" : "Projector");
  document.documentElement.dataset.scale = on ? "projector" : "";
  byId("stage").hidden = !on;
  byId("board").hidden = on;
  const [joinCard, commands, buttons] = [byId("join"), byId("commands"), byId("view")];
  if (on) {
    const kept = localStorage.getItem(PROJECTOR);
    stage ??= new ProjectorView(byId("stage"), kept, (level) =>
      localStorage.setItem(PROJECTOR, level),
    );
    stage.slot.append(joinCard, commands, buttons);
  } else {
    document.querySelector("main")?.before(joinCard);
    document.querySelector("header")?.append(buttons, commands);
  }
  update(view.live);
  if (!on && view.board.model) view.board.layout();
}

byId("projector").addEventListener("click", () => {
  const on = byId("projector").ariaPressed !== "true";
  if (on) localStorage.setItem(PROJECTOR, stage?.level ?? "on");
  else localStorage.removeItem(PROJECTOR);
  project(on);
});
byId("whole").addEventListener("click", () => {
  const on = document.body.toggleAttribute("data-whole");
  byId("whole").setAttribute("aria-expanded", String(on));
});
byId("raw").addEventListener("change", () => update(view.live));
phone.addEventListener("change", () => update(view.live));
askForKey(open);
open();
