/**
 * Saves the widgets of a notebook with it. By default JupyterLab does not save widget state, and a reopened
 * notebook then says "model not found" in place of each widget.
 *
 * When JupyterLab saves, this module puts the state of every widget that the notebook shows, with all that it
 * refers to, where JupyterLab's widget manager reads it: into the notebook's metadata. It includes what the reader has
 * just changed and the kernel does not have yet.
 */

import { unsentValues, type WidgetModel } from "./kernel_sync.ts";

type SavedWidget = { state: Record<string, any> };

/** by model id */
type SavedState = Record<string, SavedWidget>;

/** of JupyterLab: a document that can be saved */
interface NotebookContext {
  saveState?: { connect: (slot: (sender: unknown, state: string) => void) => void };
  model: {
    setMetadata?: (name: string, value: unknown) => void;
    getMetadata: (name: string) => any;
    toJSON: () => { cells: unknown };
  };
}

export interface WidgetManager {
  context?: NotebookContext;
  isDisposed?: boolean;
  get_state_sync: (options: object) => {
    state: SavedState;
    version_major: number;
    version_minor: number;
  };
  get_model: (id: string) => Promise<WidgetModel>;
}

const MIME = "application/vnd.jupyter.widget-state+json";
const page = globalThis as unknown as Record<symbol, WeakSet<object>>;
const watched = (page[Symbol.for("underglass.saved")] ??= new WeakSet());

/** Saves widgets with the notebook of this widget manager. Hosts other than JupyterLab have no such notebook. */
export function saveWith(manager: WidgetManager | undefined) {
  const context = manager?.context;
  if (!manager || !context?.saveState || !context.model?.setMetadata || watched.has(context))
    return;
  watched.add(context);
  const before = savedIn(context);
  context.saveState.connect((_, state) => {
    if (state !== "started" || manager.isDisposed) return;
    const saved = savedIn(context);
    const live = manager.get_state_sync({ drop_defaults: true });
    for (const [id, widget] of Object.entries(live.state))
      widget.state = {
        ...widget.state,
        ...unsentValues(id),
        ...unsentValues(widget.state.layout),
      };
    const shown = idsIn(JSON.stringify(context.model.toJSON().cells));
    const merged = mergeStates({ before, saved, live: live.state, shown });
    if (!Object.keys(merged).length && !Object.keys(saved).length) return;
    const { version_major, version_minor } = live;
    context.model.setMetadata?.("widgets", {
      ...context.model.getMetadata("widgets"),
      [MIME]: { version_major, version_minor, state: merged },
    });
  });
}

/**
 * Returns the state to save: every widget that is shown, with all that it refers to. If the reader's own setting
 * has just saved all widgets that have a kernel, those stay, too, except boards that are not shown.
 * `before` is what the notebook held when it was opened: with that setting on, JupyterLab drops widgets that
 * have no kernel.
 */
export function mergeStates({
  before,
  saved,
  live,
  shown,
}: {
  before: SavedState;
  saved: SavedState;
  live: SavedState;
  shown: Set<string>;
}): SavedState {
  const all = { ...before, ...saved, ...live };
  const kept = withReferences(all, [...shown]);
  const hidden = Object.keys(all).filter((id) => isOurs(all[id]) && !shown.has(id));
  const dropped = withReferences(all, hidden);
  const savedBySetting = Object.keys(live).every((id) => id in saved);
  const others = savedBySetting ? Object.entries(saved).filter(([id]) => !dropped.has(id)) : [];
  return Object.fromEntries([...others, ...[...kept].map((id) => [id, all[id]])]);
}

function savedIn({ model }: NotebookContext): SavedState {
  return model.getMetadata("widgets")?.[MIME]?.state ?? {};
}

const isOurs = ({ state }: SavedWidget) => state._anywidget_id?.startsWith("visualizer.");

const idsIn = (json: string) =>
  new Set([...json.matchAll(/"model_id":"([^"]+)"/g)].map(([, id]) => id));

/** Returns the ids of these models and of all models that they refer to or show in an output. */
function withReferences(all: SavedState, ids: string[]) {
  const found = new Set<string>();
  const rest = [...ids];
  for (let id = rest.pop(); id !== undefined; id = rest.pop()) {
    if (found.has(id) || !all[id]) continue;
    found.add(id);
    const references = JSON.stringify(all[id].state, (name, value) =>
      typeof value !== "string" || value.startsWith("IPY_MODEL_") || name === "model_id"
        ? value
        : undefined,
    );
    rest.push(...[...references.matchAll(/IPY_MODEL_([^"]+)/g)].map(([, other]) => other));
    rest.push(...idsIn(references));
  }
  return found;
}
