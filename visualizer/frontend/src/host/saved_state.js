/**
 * Saves the boards of a notebook with it. By default JupyterLab does not save the state of widgets, and a
 * reopened notebook then shows "model not found" in place of the board.
 *
 * When JupyterLab saves, the state of our widgets in the notebook is written into its metadata, where the widget
 * manager reads it. Other widgets follow the user's setting.
 */

const MIME = "application/vnd.jupyter.widget-state+json";
const watched = (globalThis[Symbol.for("underglass.saved")] ??= new WeakSet());

/** Makes the notebook of a widget manager save its boards. Other hosts have no such notebook. */
export function saveWith(manager) {
  const { context } = manager ?? {};
  if (!context?.saveState || !context.model?.setMetadata || watched.has(context)) return;
  watched.add(context);
  const before = savedIn(context);
  context.saveState.connect((_, state) => {
    if (state !== "started" || manager.isDisposed) return;
    const saved = savedIn(context);
    const live = manager.get_state_sync({ drop_defaults: true });
    const shown = idsIn(JSON.stringify(context.model.toJSON().cells));
    const merged = mergeStates({ before, saved, live: live.state, shown });
    if (!Object.keys(merged).length && !Object.keys(saved).length) return;
    const { version_major, version_minor } = live;
    context.model.setMetadata("widgets", {
      ...context.model.getMetadata("widgets"),
      [MIME]: { version_major, version_minor, state: merged },
    });
  });
}

/**
 * The state to save: of our widgets those that are shown, with the models they refer to; of other widgets the state
 * that is saved now. `before` is the state in the notebook when it was opened: if the user's setting is on, the
 * manager keeps only widgets with a kernel.
 */
export function mergeStates({ before, saved, live, shown }) {
  const all = { ...before, ...saved, ...live };
  const ours = Object.keys(all).filter((id) => isOurs(all[id]));
  const kept = withReferences(
    all,
    ours.filter((id) => shown.has(id)),
  );
  const left = withReferences(
    all,
    ours.filter((id) => !shown.has(id)),
  );
  const others = Object.entries(saved).filter(([id]) => !left.has(id));
  return Object.fromEntries([...others, ...[...kept].map((id) => [id, all[id]])]);
}

function savedIn({ model }) {
  return model.getMetadata("widgets")?.[MIME]?.state ?? {};
}

const isOurs = ({ state }) => state._anywidget_id?.startsWith("visualizer.");

const idsIn = (cells) => new Set([...cells.matchAll(/"model_id":"([^"]+)"/g)].map(([, id]) => id));

/** These models and all models that they refer to, directly or indirectly. */
function withReferences(all, ids) {
  const found = new Set();
  const rest = [...ids];
  while (rest.length) {
    const id = rest.pop();
    if (found.has(id) || !all[id]) continue;
    found.add(id);
    const text = JSON.stringify(all[id].state, (_, value) =>
      typeof value === "string" && !value.startsWith("IPY_MODEL_") ? undefined : value,
    );
    rest.push(...[...text.matchAll(/IPY_MODEL_([^"]+)/g)].map(([, other]) => other));
  }
  return found;
}
