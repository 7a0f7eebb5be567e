/** The colours of causes: where colour says why, a swatch at the left says which request. */

import { reasonWords } from "../model/messages.js";

const COLOURS = {
  light: {
    batch_full: "#e3c94f",
    static_batch: "#c7ab2e",
    no_free_blocks: "#b0601c",
    whole_sequence: "#b0601c",
    reserved_blocks: "#8f4d14",
    token_budget: "#7d8443",
    policy: "#a4977a",
    awaits_token: "#8e8a80",
    after_preemption: "#dd8d84",
    preempted: "#c23b26",
  },
  dark: {
    batch_full: "#8f7d22",
    static_batch: "#b39c2c",
    no_free_blocks: "#d9803a",
    whole_sequence: "#d9803a",
    reserved_blocks: "#a8602a",
    token_budget: "#99a35a",
    policy: "#8d826a",
    awaits_token: "#8e8a80",
    after_preemption: "#84453b",
    preempted: "#ef6f5a",
  },
};

/** In the order in which keys and stacks have them. */
export const WAIT_CAUSES = Object.keys(COLOURS.light);

/** A colour; `theme` is a palette. */
export function causeColour(theme, cause) {
  return COLOURS[theme.name][cause] ?? theme.faint;
}

/** A cause in a few words. */
export function causeWords(cause) {
  if (cause === "preempted") return "preempted";
  if (cause === "after_preemption") return "held back by a preemption";
  return reasonWords[cause] ?? cause;
}
