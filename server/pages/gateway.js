/**
 * The live page of a gateway: the cluster's board over the gateway's event feed, controls for all replicas, and the
 * prompt box. `live.js` is the page of one server.
 */

import { watch } from "/board/cluster.js";
import { Controls } from "/page/controls.js";
import { Prompts } from "/page/prompts.js";
import { showSuggestions } from "/page/suggestions.js";

const byId = (id) => document.getElementById(id);
const KEY = "underglass key";
const headers = () => {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
};

let ending = null;
let view = null;
const controls = new Controls(byId, control);
const prompts = new Prompts({
  form: byId("prompt"),
  list: byId("streams"),
  model: null,
  headers,
  select: (its, { replica }) => {
    const request = view.board.model?.replica(replica)?.requests.get(its);
    if (request !== undefined) view.board.select(request);
  },
});

function open() {
  ending?.abort();
  ending = new AbortController();
  byId("unlock").hidden = true;
  view = watch(byId("board"), { headers, onChange: update, signal: ending.signal });
}

/** Updates the page after a change of the log, the gateway's state or the connection. */
function update(live) {
  const { status, board } = live;
  const { live: state } = board.root.dataset;
  byId("unlock").hidden = state !== "refused" || !!status.run;
  // No request of one engine is selected here.
  controls.update({ status, model: null, board: { store: { selected: null } } }, state === "live");
  setText(byId("server"), describe(status));
  const held = status.held?.length ?? 0;
  setText(byId("held"), held ? `${held} held: they start together.` : "Prompts are held.");
  byId("held").hidden = !status.holding;
  const { trace_error: traceError } = status;
  setText(byId("trace-error"), traceError ? `The engines go on, but ${traceError}.` : "");
  byId("trace-error").hidden = !traceError;
  if (status.run) {
    byId("how").hidden = !status.chats;
    prompts.chats = status.chats;
    showSuggestions(byId("chips"), prompts.isChat, (prompt) => prompts.send(prompt));
  }
  for (const stream of prompts.streams) stream.show(engineOf(live, stream));
  document.body.toggleAttribute("data-sent", prompts.streams.length > 0);
}

/** What a prompt of this page looks up in the log: that of the replica that answers it. */
function engineOf({ model, run, status, board }, { replica: id }) {
  const replica = model?.replica(id);
  const step = replica?.hasSteps ? replica.model.lastStep : 0;
  return { model: replica?.model, run, status, board: { theme: board.theme, store: { step } } };
}

/** The gateway in one line. */
function describe({ model, router, replicas, controls: may }) {
  if (!replicas) return "";
  const ready = replicas.filter((one) => one.ready).length;
  const parts = [model, `${ready} of ${replicas.length} replicas`, `router ${router}`];
  if (may === false) parts.push("can be paused only from its own machine, or with a key");
  return parts.filter(Boolean).join(" · ");
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Posts a control for all replicas; returns the answer, or null and says why. */
async function control(verb, body) {
  const error = byId("error");
  error.hidden = true;
  try {
    const answer = await fetch(`/engine/${verb}`, {
      method: "POST",
      headers: { ...headers(), ...(body && { "Content-Type": "application/json" }) },
      body: body && JSON.stringify(body),
    });
    const said = await answer.json();
    if (answer.ok) return said;
    error.textContent = said.error.message;
  } catch {
    error.textContent = "The gateway does not answer.";
  }
  error.hidden = false;
  return null;
}

byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, byId("key").value);
  open();
});

open();
