/** Opens the tour of a log: Python tells it, so a page has it with its log or asks for it. */

import type { Fetch } from "../board/seat.ts";
import type { Shell } from "../board/shell.ts";
import { h } from "../drawing/html.ts";
import type { Saving } from "../panels/run_panel.ts";
import type { Scene, TourHost } from "./scenes.ts";

/** what Python tells of a run when it is asked: scenes, and, of a log that could be replayed, what ideas saved */
export interface Told {
  scenes: Scene[];
  saved?: Saving[];
}

/** Asks Python; null: it does not answer. */
export type Tell = () => Promise<Told | null>;

const MISSING =
  "This page has no tour of this log, because the log is long or Python has not read it. In a shell: underglass tell FILE";

/** Shows the tour in place of what `shell` shows, or says why there is none. */
export async function openTour(shell: Shell, host: TourHost, known?: Scene[], tell?: Tell) {
  if (shell.root.dataset.tour !== undefined) return null;
  shell.root.querySelector(".no-tour")?.remove();
  const scenes = known?.length ? known : (await tell?.().catch(() => null))?.scenes;
  if (shell.signal.aborted || shell.root.dataset.tour !== undefined) return null;
  const page = scenes?.length && (await pageOf(shell));
  if (scenes && !(await areThere(scenes, host))) return null;
  if (shell.signal.aborted || shell.root.dataset.tour !== undefined) return null;
  if (page) return new page.TourView(shell, host, scenes);
  shell.root.prepend(h("p.note.no-tour", { role: "alert" }, MISSING));
  return null;
}

/** Reads the events of the scenes' steps. False: they are damaged. */
function areThere(scenes: Scene[], { modelOf }: TourHost) {
  const fetches = scenes.map((scene) => {
    const model = modelOf(scene, scene.run);
    if (!model) return null;
    const step = scene.step ?? model.firstStep;
    // A page may have joined the run after a step that Python tells of.
    return step < model.firstStep || step > model.lastStep ? null : model.fetch(step);
  });
  return Promise.all(fetches).then(
    () => true,
    () => false,
  );
}

/** The tour's page, which a board in a notebook gets from its kernel; null if that does not answer. */
async function pageOf({ loadTour }: Shell) {
  await loadTour?.();
  return import("./tour.ts").catch(() => null);
}

/** The scenes that a server tells at a URL, or beside the URL of its feed. */
export const tellFrom =
  (
    feed: string,
    headers: () => Record<string, string> = () => ({}),
    fetchFrom: Fetch = (url, init) => fetch(url, init),
  ): Tell =>
  async () => {
    const { signal } = new AbortController();
    const url = feed.replace(/events(?=$|\?)/, "tour");
    const answer = await fetchFrom(url, { headers: headers(), signal });
    return answer.ok ? answer.json() : null;
  };
