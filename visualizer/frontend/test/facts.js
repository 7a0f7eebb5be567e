/** Checks that a text has names, values and numbers, independent of its wording. */

import assert from "node:assert/strict";
import { inWords } from "../src/model/words.js";

/** Whether a text contains a whole word. A number may be spelled out: 2 or "two". */
export function names(text, fact) {
  const forms =
    Number.isInteger(fact) && fact >= 0 ? [String(fact), inWords(fact)] : [String(fact)];
  return forms.some((form) => {
    const escaped = form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return new RegExp(`(?<![\\w.])${escaped}(?!\\w|\\.\\d)`, "i").test(text);
  });
}

export function assertNames(text, ...facts) {
  const missing = facts.filter((fact) => !names(text, fact));
  assert.deepEqual(missing, [], `not named in: ${text}`);
}
