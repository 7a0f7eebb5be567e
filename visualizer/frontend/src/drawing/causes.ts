/**
 * The colours of causes: where colour says why, a swatch at the left says which request.
 *
 * Any two colours of a theme are at least 11 apart (CIEDE2000) for normal, protan and deutan eyes. Dots mean that seats
 * are lacking, and lines that a preemption is the cause; other causes are solid.
 */

import { causeName } from "../model/waterfall_words.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import type { Theme } from "./palette.ts";

const COLOURS: Record<string, Record<Theme["name"], string>> = {
  batch_full: { light: "#c5b206", dark: "#efd604" },
  static_batch: { light: "#fbdf6e", dark: "#ffff9c" },
  no_free_blocks: { light: "#773a01", dark: "#ef8c37" },
  whole_sequence: { light: "#e1b789", dark: "#f1b690" },
  reserved_blocks: { light: "#a24f3f", dark: "#bc6c00" },
  token_budget: { light: "#85945d", dark: "#547045" },
  policy: { light: "#3c3725", dark: "#faebd4" },
  adapter_slot: { light: "#6d4a8f", dark: "#c9a9e6" },
  expected_tokens: { light: "#2f7d84", dark: "#63c5cd" },
  prefill_batch: { light: "#b08fc0", dark: "#8a5fa0" },
  awaits_token: { light: "#7c7c6f", dark: "#9e9e9e" },
  after_preemption: { light: "#d39496", dark: "#735059" },
  preempted: { light: "#eb3c10", dark: "#da796b" },
  step_in_progress: { light: "#dad8c6", dark: "#463b2c" },
  prefill: { light: "#424f7c", dark: "#849eca" },
  decode: { light: "#a2aec7", dark: "#4e5e7e" },
  recomputed: { light: "#7b4b4f", dark: "#a76e72" },
  others_prefill: { light: "#662d49", dark: "#b2290e" },
  between_passes: { light: "#cfdbe4", dark: "#313138" },
  failed_step: { light: "#16181d", dark: "#eceef2" },
  paused: { light: "#666674", dark: "#818193" },
  unknown: { light: "#7585a1", dark: "#b4bfd1" },
};

/** The colour of a cause. */
export function causeColour(theme: Theme, cause: string) {
  return COLOURS[cause]?.[theme.name] ?? theme.faint;
}

const PATTERNS: Record<string, "dots" | "lines"> = {
  batch_full: "dots",
  static_batch: "dots",
  preempted: "lines",
  after_preemption: "lines",
};
const PITCH = 4; // px between two dots or lines
const DOT = 1.1; // px, the radius
const LINE = 1; // px

/** Fills a rectangle with the colour and the pattern of a cause; a tiny one has no room for a pattern. */
export function fillCause(
  painter: CanvasPainter,
  cause: string,
  [x, y, width, height]: [x: number, y: number, width: number, height: number],
) {
  const { ground } = painter.theme;
  painter.fill(x, y, width, height, causeColour(painter.theme, cause));
  const pattern = PATTERNS[cause];
  if (!pattern || width < PITCH || height < PITCH - 1) return;
  const paint = painter.tile(`cause ${pattern} ${ground}`, PITCH, (tile) => {
    tile.fillStyle = ground;
    tile.beginPath();
    if (pattern === "dots") tile.arc(PITCH / 2, PITCH / 2, DOT, 0, 7);
    else tile.rect(0, (PITCH - LINE) / 2, PITCH, LINE);
    tile.fill();
  });
  const { context } = painter;
  context.translate(x, y);
  painter.fill(0, 0, width, height, paint);
  context.translate(-x, -y);
}

/** Gives an HTML element the colour and the pattern of a cause. */
export function paintCause(element: HTMLElement, theme: Theme, cause: string) {
  const px = (number: number) => `calc(${number} * var(--px, 1px))`;
  const pattern = PATTERNS[cause];
  const edges = [px((PITCH - LINE) / 2), px((PITCH + LINE) / 2)];
  const image = {
    dots: `radial-gradient(circle, ${theme.ground} ${px(DOT)}, transparent ${px(DOT + 0.3)})`,
    lines: `linear-gradient(transparent ${edges[0]}, ${theme.ground} ${edges[0]} ${edges[1]}, transparent ${edges[1]})`,
  }[pattern];
  const tiled = image ? `${image} 0 0 / ${px(PITCH)} ${px(PITCH)} ` : "";
  element.style.background = `${tiled}${causeColour(theme, cause)}`;
}

/** A cause in a few words. */
export function causeWords(cause: string): string {
  return cause === "after_preemption" ? "held back by a preemption" : causeName(cause);
}
