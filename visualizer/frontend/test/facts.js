/** Checks that a text has names, values and numbers, independent of its wording. */

import assert from "node:assert/strict";

/** Whether a text contains a whole word. A 1 may be written "one". */
export function names(text, fact) {
  const forms = fact === 1 ? ["1", "one"] : [String(fact)];
  return forms.some((form) => {
    const escaped = form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return new RegExp(`(?<![\\w.])${escaped}(?!\\w|\\.\\d)`, "i").test(text);
  });
}

export function assertNames(text, ...facts) {
  const missing = facts.filter((fact) => !names(text, fact));
  assert.deepEqual(missing, [], `not named in: ${text}`);
}
