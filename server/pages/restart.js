/**
 * Restart the engine with other settings, and compare the run before the restart with the new one. The form shows
 * the settings of the current run, which its log begins with; only changed ones are sent.
 */

const CHOICES = {
  prefix_cache: ["radix", "hash", "off"],
  eviction: ["lru", "lfu"],
  policy: ["fcfs", "priority", "sjf", "lpm", "fair"],
  batching: ["continuous", "static"],
  admission: ["whole", "first_chunk"],
  chunked_prefill: ["on", "off"],
  preemption: ["on", "off"],
  async_scheduling: ["off", "on"],
  jump_forward: ["on", "off"],
};
const NUMBERS = ["max_batch_size", "token_budget", "max_kv_tokens", "block_size"];
const SWITCHES = new Set(["chunked_prefill", "preemption", "async_scheduling", "jump_forward"]);

export class Restart {
  #live = null;
  #run = ""; // whose settings the form shows

  /** `send(verb, body)` posts a command and returns the answer, or null after an error. */
  constructor(byId, send) {
    Object.assign(this, { byId, send });
    this.form = byId("restart");
    this.fields = [
      ...Object.entries(CHOICES).map(([name, values]) => choice(name, values)),
      ...NUMBERS.map(number),
    ];
    byId("settings").append(...this.fields.map(labelled));
    byId("restart-button").addEventListener("click", () => this.#show(this.form.hidden));
    byId("restart-cancel").addEventListener("click", () => this.#show(false));
    this.form.addEventListener("input", () => this.#writeChanges());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#restart();
    });
  }

  /** Shows the settings of a new run, and what a restart would end. */
  update(live, connected) {
    this.#live = live;
    const { settings } = live.model ?? {};
    this.byId("restart-now").disabled = !connected;
    if (settings?.num_blocks && this.#run !== live.run) {
      this.#run = live.run;
      this.#fill();
    }
    if (!this.form.hidden) this.#writeChanges();
  }

  #show(on) {
    this.form.hidden = !on;
    this.byId("restart-button").setAttribute("aria-expanded", on);
    if (!on) {
      this.byId("restart-button").focus();
      return;
    }
    this.#fill();
    this.#writeChanges();
    this.fields[0].focus();
  }

  #fill() {
    const { settings } = this.#live.model;
    for (const field of this.fields) field.value = shown(settings[field.name]);
  }

  /** The settings that differ from those of the run, as {name: value}. */
  get #changes() {
    const { settings } = this.#live?.model ?? {};
    const changed = this.fields.filter(
      ({ name, value }) => settings && value !== shown(settings[name]),
    );
    return Object.fromEntries(changed.map((field) => [field.name, typed(field)]));
  }

  #writeChanges() {
    const { model, status } = this.#live;
    const changes = this.#changes;
    for (const field of this.fields) field.toggleAttribute("data-changed", field.name in changes);
    const words = Object.entries(changes).map(
      ([name, value]) => `${name} ${shown(model.settings[name])} → ${shown(value)}`,
    );
    const live = model.requests.filter(({ finished }) => !finished).length;
    const count = live + (status.held?.length ?? 0);
    if (count) words.push(`ends ${count} unfinished request${count === 1 ? "" : "s"}`);
    setText(this.byId("restart-note"), words.join(" · ") || "No setting is changed.");
  }

  async #restart() {
    const prompts = new FormData(this.form).get("prompts");
    const answer = await this.send("restart", { settings: this.#changes, prompts, abort: true });
    if (answer) this.#show(false);
  }
}

export class Comparison {
  #ending = null;

  /** `fetchRuns()` returns the answer of /compare, or null after an error. */
  constructor(byId, fetchRuns) {
    Object.assign(this, { byId, fetchRuns });
    byId("compare-button").addEventListener("click", () => this.#open());
    byId("compare-close").addEventListener("click", () => this.close());
  }

  /** Offers the comparison once there is a run before this one. */
  update({ status, model }) {
    const button = this.byId("compare-button");
    button.hidden = !status.previous;
    button.disabled = this.isBusy || !model?.stepCount;
  }

  async #open() {
    const { byId } = this;
    const button = byId("compare-button");
    this.isBusy = button.disabled = true;
    setText(button, "Comparing …");
    const [runs, { mount }] = await Promise.all([this.fetchRuns(), import("/board/board.js")]);
    this.isBusy = button.disabled = false;
    setText(button, "Compare");
    if (!runs) return;
    this.#ending?.abort();
    this.#ending = new AbortController();
    document.body.toggleAttribute("data-comparing", true);
    byId("comparison").hidden = false;
    const [log, b] = runs.logs;
    await mount(byId("compared"), {
      log: Uint8Array.from(atob(log), (letter) => letter.charCodeAt(0)),
      compare: { b, facts: runs.facts },
      signal: this.#ending.signal,
    });
    byId("compare-close").focus();
  }

  close() {
    this.#ending?.abort();
    this.byId("comparison").hidden = true;
    document.body.toggleAttribute("data-comparing", false);
    this.byId("compare-button").focus();
  }
}

/** What the last restart changed, for all viewers; "" if the engine was not restarted. */
export function restartWords({ previous }) {
  if (!previous) return "";
  const changes = Object.entries(previous.changed).map(
    ([name, [before, after]]) => `${name} ${shown(before)} → ${shown(after)}`,
  );
  const again = { same_steps: "the same prompts", together: "the same prompts, all at once" };
  const parts = [...changes, again[previous.prompts]].filter(Boolean);
  return `The engine was restarted${parts.length ? `: ${parts.join(", ")}` : ""}.`;
}

const shown = (value) => ({ true: "on", false: "off" })[value] ?? String(value);

function typed({ name, value }) {
  if (NUMBERS.includes(name)) return Number(value);
  return SWITCHES.has(name) ? value === "on" : value;
}

function choice(name, values) {
  const field = document.createElement("select");
  field.name = name;
  field.append(...values.map((value) => new Option(value, value)));
  return field;
}

function number(name) {
  const field = document.createElement("input");
  Object.assign(field, { name, type: "number", min: "1", step: "1", required: true });
  return field;
}

function labelled(field) {
  const label = document.createElement("label");
  label.append(field.name.replaceAll("_", " "), field);
  return label;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
