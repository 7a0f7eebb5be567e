/** The step at which a board opens, and the request it selects. */

/** The step of the first preemption, else of the first cache hit, else of the fullest batch. @param {import("./model.js").Model} model */
export function openingStep(model) {
  const { preempted, found, rows } = model.measures;
  const first = [preempted, found].map((values) => values.findIndex((value) => value > 0));
  const index =
    first.find((at) => at >= 0) ?? rows.indexOf(rows.reduce((a, b) => Math.max(a, b), 0));
  return model.firstStep + Math.max(0, index);
}

/** @param {import("./model.js").Model} model @returns {number | null} */
export function openingRequest(model) {
  if (!model.stepCount) return null;
  const { story, running, waiting } = model.frame(openingStep(model));
  const hit = story.admissions.find(({ found }) => found);
  const chosen = story.preemptions[0] ?? hit ?? story.rows[0];
  return chosen?.request ?? running[0] ?? waiting[0] ?? null;
}
