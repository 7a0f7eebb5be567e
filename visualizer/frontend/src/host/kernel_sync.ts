/**
 * Sends changes of the view to the kernel, a few times a second and one message at a time.
 *
 * A kernel may set a value while a change is on its way, and the later of the two must win. A value is therefore
 * written into the widget's model only when it is sent; otherwise it would be sent after the kernel's value. Nothing
 * is sent before the kernel has processed the last message, because the widget manager would queue it. A notebook that
 * is saved meanwhile gets the values that are not sent yet from `unsentValues`.
 */

import type { WidgetManager } from "./saved_state.ts";

/** a widget's model, as anywidget and the widget managers have it */
export interface WidgetModel {
  model_id?: string;
  get: (trait: string) => any;
  set: (trait: string, value: unknown) => void;
  save_changes: (callbacks?: object) => void;
  on: (event: string, handler: (...what: any[]) => void) => void;
  off: (event: string, handler: (...what: any[]) => void) => void;
  send: (content: object, callbacks?: unknown, buffers?: ArrayBufferLike[]) => void;
  widget_manager: WidgetManager;
}

const EVERY = 200; // ms
const PATIENCE = 30_000; // ms; a kernel may be busy for long, and a dead one never answers
const page = globalThis as unknown as Record<symbol, Map<string, WeakRef<KernelSync>>>;
/** The name in the saved state is the key, because each widget may have loaded its own copy of this module. */
const syncs = (page[Symbol.for("underglass.syncs")] ??= new Map());

/**
 * The values of a widget's view that are not in its model yet, by name.
 *
 * @param name of the model, see `KernelSync`
 */
export const unsentValues = (name: string | undefined): Record<string, unknown> =>
  syncs.get(name ?? "")?.deref()?.unsent ?? {};

export class KernelSync {
  #timer: number | null = null;
  /** Timer of a message that the kernel has not processed yet. */
  #sent: number | null = null;
  shared: WidgetModel;
  state: () => Record<string, unknown>;
  onSync: (isDone: boolean) => void;

  /**
   * `shared` is the widget's model; `state()` returns its current values; `onSync(isDone)` is called before and after.
   * `name` tells this widget from all others in a saved state: its model's id, or the reference to its layout.
   */
  constructor(
    shared: WidgetModel,
    name: string | undefined,
    state: () => Record<string, unknown>,
    onSync: (isDone: boolean) => void = () => {},
  ) {
    this.shared = shared;
    this.state = state;
    this.onSync = onSync;
    if (name) syncs.set(name, new WeakRef(this));
  }

  /** The view's values that differ from the model's, by name. */
  get unsent() {
    return Object.fromEntries(this.#changes());
  }

  /** The caller calls this when the view may have changed. */
  moved() {
    if (!this.#changes().length) return;
    this.onSync(false);
    if (!this.#sent) this.#timer ??= setTimeout(() => this.#send(), EVERY);
  }

  #changes() {
    const same = ([name, value]: [name: string, value: unknown]) =>
      String(this.shared.get(name)) === String(value);
    return Object.entries(this.state()).filter((entry) => !same(entry));
  }

  #send() {
    this.#timer = null;
    const changes = this.#changes();
    if (!changes.length) {
      this.onSync(true);
      return;
    }
    for (const [name, value] of changes) this.shared.set(name, value);
    const status = ({ content }: { content: { execution_state: string } }) =>
      content.execution_state === "idle" && this.#taken();
    // Jupyter's widget manager accepts callbacks and reports when the kernel is done; other hosts do not.
    const { length } = this.shared.save_changes;
    this.#sent = setTimeout(() => this.#taken(), length ? PATIENCE : 0);
    this.shared.save_changes({ iopub: { status } });
  }

  #taken() {
    if (!this.#sent) return;
    clearTimeout(this.#sent);
    this.#sent = null;
    if (this.#changes().length) this.#timer ??= setTimeout(() => this.#send(), EVERY);
    else this.onSync(true);
  }
}
