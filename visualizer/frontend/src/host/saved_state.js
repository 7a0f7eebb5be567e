/**
 * Saves the boards of a notebook with it. JupyterLab leaves a widget's state out unless the reader asks for
 * it, and a reopened notebook then says "model not found" in place of the board.
 *
 * When JupyterLab saves, the state of our widgets that the notebook shows is put where its manager reads it:
 * into the notebook's metadata. Other widgets are left to the reader's setting.
 */

const MIME = "application/vnd.jupyter.widget-state+json";
const watched = (globalThis[Symbol.for("underglass.saved")] ??= new WeakSet());

/** Sees to it that the notebook of a widget's manager saves its boards; other hosts have no such notebook. */
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
 * What to save: of our widgets those that are shown, with what they refer to; of others what is saved now.
 * `before` is what the notebook held when it was opened: with the reader's setting on, the manager keeps
 * only what has a kernel.
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

/** These models and all that they refer to, directly or not. */
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
