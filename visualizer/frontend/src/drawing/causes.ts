/** The colours of causes: where colour says why, a swatch at the left says which request. */

import { causeName } from "../model/waterfall_words.ts";
import type { Theme } from "./palette.ts";

const COLOURS: Record<string, Record<Theme["name"], string>> = {
  batch_full: { light: "#e3c94f", dark: "#8f7d22" },
  static_batch: { light: "#c7ab2e", dark: "#b39c2c" },
  no_free_blocks: { light: "#b0601c", dark: "#d9803a" },
  whole_sequence: { light: "#b0601c", dark: "#d9803a" },
  reserved_blocks: { light: "#8f4d14", dark: "#a8602a" },
  token_budget: { light: "#7d8443", dark: "#99a35a" },
  policy: { light: "#a4977a", dark: "#8d826a" },
  awaits_token: { light: "#8e8a80", dark: "#8e8a80" },
  after_preemption: { light: "#dd8d84", dark: "#84453b" },
  preempted: { light: "#c23b26", dark: "#ef6f5a" },
  step_in_progress: { light: "#cfc3a6", dark: "#665c45" },
  prefill: { light: "#44526b", dark: "#8fa3c4" },
  decode: { light: "#a9b4c7", dark: "#56647d" },
  recomputed: { light: "#c23b26", dark: "#ef6f5a" },
  others_prefill: { light: "#c23b26", dark: "#ef6f5a" },
  between_passes: { light: "#bfc4cd", dark: "#454a54" },
  failed_step: { light: "#16181d", dark: "#eceef2" },
  paused: { light: "#8a909c", dark: "#7b828e" },
  unknown: { light: "#8a909c", dark: "#7b828e" },
};

/** The colour of a cause. */
export function causeColour(theme: Theme, cause: string) {
  return COLOURS[cause]?.[theme.name] ?? theme.faint;
}

/** A cause in a few words. */
export function causeWords(cause: string): string {
  return cause === "after_preemption" ? "held back by a preemption" : causeName(cause);
}
