/** `play.js`: the playground as anywidget's `render`. It needs no board. */

import { saveWith, type WidgetManager } from "./host/saved_state.ts";
import { attach } from "./play/play.ts";

interface PageModel {
  get(name: "page"): string;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
  send(message: object): void;
  widget_manager?: WidgetManager;
}

function render({ model, el, signal }: { model: PageModel; el: HTMLElement; signal: AbortSignal }) {
  el.dataset.lmSuppressShortcuts = "true"; // JupyterLab's keys
  el.innerHTML = model.get("page");
  const show = attach(el, (wish) => model.send(wish), signal);
  const follow = () => show(model.get("page"));
  model.on("change:page", follow);
  saveWith(model.widget_manager);
  signal.addEventListener("abort", () => model.off("change:page", follow));
}

export default { render };
