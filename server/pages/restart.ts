/**
 * Restart the engine with other settings, and compare the run before the restart with the new one. The form shows
 * the settings of the current run, which its log begins with; only changed ones are sent.
 */

import type { Facts } from "../../visualizer/frontend/src/compare/compare.ts";
import { mountComparison } from "../../visualizer/frontend/src/compare/mount_comparison.ts";
import { fromBase64 } from "../../visualizer/frontend/src/host/log_bytes.ts";
import { type ServerStatus, setText } from "../../visualizer/frontend/src/live/live.ts";
import type { LiveBoard } from "../../visualizer/frontend/src/live/live_board.ts";
import { byId, type Send } from "./page.ts";

export class Restart {
  #live: LiveBoard | null = null;
  #run = ""; // whose settings the form shows
  form = byId<HTMLFormElement>("restart");
  send: Send;
  fields: HTMLInputElement[]; // and selects: the server writes one for each setting

  constructor(send: Send) {
    this.send = send;
    this.fields = [...byId("settings").querySelectorAll<HTMLInputElement>("[name]")];
    byId("restart-button").addEventListener("click", () => this.#show(!!this.form.hidden));
    byId("restart-cancel").addEventListener("click", () => this.#show(false));
    this.form.addEventListener("input", () => this.#writeChanges());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#restart();
    });
  }

  /** Shows the settings of a new run, and what a restart would end. */
  update(live: LiveBoard, connected: boolean) {
    this.#live = live;
    const settings = live.model?.settings;
    byId<HTMLButtonElement>("restart-now").disabled = !connected;
    if (settings?.num_blocks && this.#run !== live.run) {
      this.#run = live.run;
      this.#fill();
    }
    if (!this.form.hidden) this.#writeChanges();
  }

  #show(on: boolean) {
    this.form.hidden = !on;
    byId("restart-button").setAttribute("aria-expanded", String(on));
    if (!on) {
      byId("restart-button").focus();
      return;
    }
    this.#fill();
    this.#writeChanges();
    this.fields[0].focus();
  }

  #fill() {
    const settings = this.#live?.model?.settings;
    if (!settings) return;
    for (const field of this.fields) field.value = shown(settings[field.name]);
  }

  /** The settings that differ from those of the run, as {name: value}. */
  get #changes() {
    const settings = this.#live?.model?.settings;
    const changed = this.fields.filter(
      ({ name, value }) => settings && value !== shown(settings[name]),
    );
    return Object.fromEntries(changed.map((field) => [field.name, typed(field)]));
  }

  #writeChanges() {
    const { model, status } = this.#live ?? {};
    if (!model) return;
    const changes = this.#changes;
    for (const field of this.fields) field.toggleAttribute("data-changed", field.name in changes);
    const words = Object.entries(changes).map(
      ([name, value]) => `${name} ${shown(model.settings[name])} → ${shown(value)}`,
    );
    const live = model.requests.filter(({ finished }) => !finished).length;
    const count = live + (status?.held?.length ?? 0);
    if (count) words.push(`ends ${count} unfinished request${count === 1 ? "" : "s"}`);
    setText(byId("restart-note"), words.join(" · ") || "No setting is changed.");
  }

  async #restart() {
    const prompts = new FormData(this.form).get("prompts");
    const answer = await this.send("restart", { settings: this.#changes, prompts, abort: true });
    if (answer) this.#show(false);
  }
}

/** The answer of /compare: both logs in base64, and the server's comparison of them. */
interface Runs {
  logs: [string, string];
  facts: Facts;
}

export class Comparison {
  #ending: AbortController | null = null;
  isBusy = false;
  fetchRuns: () => Promise<Runs | null>;

  /** `fetchRuns()` returns the answer of /compare, or null after an error. */
  constructor(fetchRuns: () => Promise<Runs | null>) {
    this.fetchRuns = fetchRuns;
    byId("compare-button").addEventListener("click", () => this.#open());
    byId("compare-close").addEventListener("click", () => this.close());
  }

  /** Offers the comparison once there is a run before this one. */
  update({ status, model }: LiveBoard) {
    const button = byId<HTMLButtonElement>("compare-button");
    button.hidden = !status.previous;
    button.disabled = this.isBusy || !model?.stepCount;
  }

  async #open() {
    const button = byId<HTMLButtonElement>("compare-button");
    this.isBusy = button.disabled = true;
    setText(button, "Comparing …");
    const runs = await this.fetchRuns();
    this.isBusy = button.disabled = false;
    setText(button, "Compare");
    if (!runs) return;
    this.#ending?.abort();
    this.#ending = new AbortController();
    document.body.toggleAttribute("data-comparing", true);
    byId("comparison").hidden = false;
    const [log, b] = runs.logs;
    await mountComparison(byId("compared"), {
      log: fromBase64(log),
      compare: { b, facts: runs.facts },
      signal: this.#ending.signal,
    });
    byId("compare-close").focus();
  }

  close() {
    this.#ending?.abort();
    byId("comparison").hidden = true;
    document.body.toggleAttribute("data-comparing", false);
    byId("compare-button").focus();
  }
}

/** What the last restart changed, for all viewers; "" if the engine was not restarted. */
export function restartWords({ previous }: ServerStatus) {
  if (!previous) return "";
  const changes = Object.entries(previous.changed).map(
    ([name, [before, after]]) => `${name} ${shown(before)} → ${shown(after)}`,
  );
  const again: Record<string, string> = {
    same_steps: "the same prompts",
    together: "the same prompts, all at once",
  };
  const parts = [...changes, again[previous.prompts]].filter(Boolean);
  return `The engine was restarted${parts.length ? `: ${parts.join(", ")}` : ""}.`;
}

const shown = (value: unknown) => (value === true ? "on" : value === false ? "off" : String(value));

const SWITCHED: Record<string, boolean> = { on: true, off: false };
const typed = ({ type, value }: HTMLInputElement) =>
  type === "number" ? Number(value) : (SWITCHED[value] ?? value);
