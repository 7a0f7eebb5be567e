/**
 * The live page: the board over this server's event feed, the teacher's buttons, and a box for prompts.
 *
 * One connection brings everything that is shown of the engine, `GET /events`; nothing is asked again and
 * again. Where the server has a key, the page asks for it and keeps it as long as its tab is open. Of a server
 * with `--model auto`, `/?model=NAME` shows one model; without, the first.
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
let asleep = ""; // why there is nothing to watch yet
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
  offerModels();
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

/** Links to the models of a server that has several. */
async function offerModels() {
  const answer = await fetch("/v1/models", { headers: headers() }).catch(() => null);
  if (!answer?.ok) return;
  const models = (await answer.json()).data;
  const names = models.map(({ id }) => id);
  const shown = models.find(({ id }) => id === model);
  if (shown?.loaded === false) asleep = `${model} is not loaded yet: send it a prompt`;
  if (names.length > 1 && model && !shown) asleep = `There is no model ${model} here`;
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

/** The server in a line: what it serves, how it is set, and why it cannot be held from here. */
function describe({ model, controls }, settings) {
  if (!settings?.num_blocks) return asleep;
  const {
    token_budget: budget,
    max_batch_size: batch,
    num_blocks: blocks,
    block_size: size,
  } = settings;
  const parts = [
    model,
    `${number(budget)} tokens a step`,
    `${number(batch)} requests at once`,
    `${number(blocks)} blocks of ${size}`,
    settings.policy,
  ];
  if (controls === false) parts.push("held only from its own machine, or with a key");
  return parts.join(" · ");
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

async function control(verb) {
  const trouble = byId("trouble");
  trouble.hidden = true;
  try {
    const answer = await fetch(`/engine/${verb}${query}`, { method: "POST", headers: headers() });
    if (answer.ok) return;
    trouble.textContent = (await answer.json()).error.message;
  } catch {
    trouble.textContent = "The server does not answer.";
  }
  trouble.hidden = false;
}

for (const verb of ["pause", "step", "resume"])
  byId(verb).addEventListener("click", () => control(verb));
byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value);
  open();
});
open();
