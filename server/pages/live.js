/**
 * The live page: the board over this server's event feed, the teacher's buttons, and the prompt box.
 *
 * One connection, `GET /events`, delivers everything that the page shows of the engine; there is no polling.
 * If the server has a key, the page asks the user for it and keeps it until the tab is closed. With
 * `--model auto`, `/?model=NAME` shows one model; without a name, the first.
 */

import { watch } from "/board/board.js";
import { Prompts } from "/page/prompts.js";

const byId = (id) => document.getElementById(id);
const KEY = "underglass key";
const headers = () => {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
};
const model = new URLSearchParams(location.search).get("model");
const query = model ? `?${new URLSearchParams({ model })}` : "";
const number = (value) => value.toLocaleString("en");

let ending = null;
let view = null;
let notLoaded = ""; // why there is no log to draw yet
const prompts = new Prompts({
  form: byId("prompt"),
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
    headers,
    onChange: update,
    signal: ending.signal,
  });
  showModels();
}

/** Updates the page after a change of the log, the server's state or the connection. */
function update(live) {
  const { status, board } = live;
  const { live: state } = board.root.dataset;
  const connected = state === "live" || state === "over";
  byId("unlock").hidden = state !== "refused" || !!status.run;
  byId("engine").hidden = !status.controls;
  byId("pause").disabled = !connected || status.paused;
  byId("step").disabled = byId("resume").disabled = !connected || !status.paused;
  setText(byId("server"), describe(status, live.model?.settings));
  prompts.show(live);
}

/** Show links to the models of a server that has several. */
async function showModels() {
  const answer = await fetch("/v1/models", { headers: headers() }).catch(() => null);
  if (!answer?.ok) return;
  const models = (await answer.json()).data;
  const names = models.map(({ id }) => id);
  const shown = models.find(({ id }) => id === model);
  if (shown?.loaded === false) notLoaded = `${model} is not loaded. Send it a prompt to load it.`;
  if (names.length > 1 && model && !shown) notLoaded = `This server has no model ${model}.`;
  update(view.live);
  byId("models").hidden = names.length < 2;
  byId("models").replaceChildren(
    ...names.map((name, at) => {
      const link = document.createElement("a");
      link.textContent = name;
      link.href = at ? `/?${new URLSearchParams({ model: name })}` : "/";
      if (name === (model ?? names[0])) link.ariaCurrent = "page";
      return link;
    }),
  );
}

/** The server in one line: its model, its settings, and why it cannot be paused from here. */
function describe({ model, controls }, settings) {
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

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function control(verb) {
  const error = byId("error");
  error.hidden = true;
  try {
    const answer = await fetch(`/engine/${verb}${query}`, { method: "POST", headers: headers() });
    if (answer.ok) return;
    error.textContent = (await answer.json()).error.message;
  } catch {
    error.textContent = "The server does not answer.";
  }
  error.hidden = false;
}

for (const verb of ["pause", "step", "resume"])
  byId(verb).addEventListener("click", () => control(verb));
byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value);
  open();
});
open();
