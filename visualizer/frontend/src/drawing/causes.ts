/** The colours of causes: where colour says why, a swatch at the left says which request. */

import { causeName } from "../model/waterfall_words.ts";
import type { Theme } from "./palette.ts";

const COLOURS: Record<Theme["name"], Record<string, string>> = {
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
    step_in_progress: "#cfc3a6",
    prefill: "#44526b",
    decode: "#a9b4c7",
    recomputed: "#c23b26",
    others_prefill: "#c23b26",
    between_passes: "#bfc4cd",
    failed_step: "#16181d",
    paused: "#8a909c",
    unknown: "#8a909c",
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
    step_in_progress: "#665c45",
    prefill: "#8fa3c4",
    decode: "#56647d",
    recomputed: "#ef6f5a",
    others_prefill: "#ef6f5a",
    between_passes: "#454a54",
    failed_step: "#eceef2",
    paused: "#7b828e",
    unknown: "#7b828e",
  },
};

/** The colour of a cause. */
export function causeColour(theme: Theme, cause: string) {
  return COLOURS[theme.name][cause] ?? theme.faint;
}

/** A cause in a few words. */
export function causeWords(cause: string): string {
  return cause === "after_preemption" ? "held back by a preemption" : causeName(cause);
}
