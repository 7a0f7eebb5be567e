/**
 * Both runs as a whole after a choice: what happened is solid, the consequence an outline below it. The lanes stay
 * where they are; only the columns become narrow, so that the ends of all requests are in view.
 */

import type { RequestSpan } from "../model/request_spans.ts";
import { baseOf, type Layout, topOf } from "./layout.ts";
import { drawMemory } from "./memory.ts";
import type { Shown } from "./picture.ts";
import { NAMES, type Run, YOU } from "./run.ts";
import { Sheet } from "./shapes.ts";

export function overview(shown: Shown, after: Run, layout: Layout): Sheet {
  const sheet = new Sheet();
  const { run, now } = shown;
  const steps = Math.max(run.lastStep, after.lastStep);
  const column = (layout.width - layout.left) / steps;
  const x = (step: number) => layout.left + (step - 1) * column;
  const { pitch, width } = layout;
  const band = topOf(layout, YOU);
  sheet.rect(-8, band, width + 16, pitch, "band");
  sheet.rect(-8, band, 3, pitch, "ink");
  sheet.path(`M${x(now)} 0V${band + pitch}M${x(now + 1)} 0V${band + pitch}`, "cursor");
  sheet.rect(x(now) - 18 + column / 2, 0, 36, layout.top - 4, "ink");
  sheet.text("now", x(now) + column / 2, 14, "head");
  const fork = forkOf(run, after);
  if (fork) sheet.path(dot(x(fork), layout.top + 8), "ink");
  for (let place = 0; place < NAMES.length; place++) {
    const base = baseOf(layout, place);
    sheet.rect(0, base - 12, 14, 14, `hue p${place}`);
    sheet.text(NAMES[place], 20, base, "name");
    sheet.path(`M${layout.left} ${base + 0.5}H${width}`, "rule");
    for (const bar of bars(run, place)) {
      const names = `${bar.kind === "away" ? "away" : bar.kind === "again" ? "again" : "hue"} p${place}`;
      const height = bar.kind === "write" ? 6 : bar.kind === "away" ? 4 : 14;
      sheet.rect(x(bar.from), base - height, (bar.to - bar.from + 1) * column, height, names);
    }
    for (const bar of bars(after, place)) {
      bar.from = Math.max(bar.from, fork ?? Infinity);
      if (bar.kind === "away" || bar.to < bar.from) continue;
      const height = bar.kind === "write" ? 6 : 12;
      const long = (bar.to - bar.from + 1) * column;
      sheet.rect(x(bar.from) + 0.5, base + 6.5, long - 1, height, `ghost p${place}`);
    }
    const words = endWords(run, after, place);
    sheet.text(words, layout.isNarrow ? 0 : 20, base + 19, "sub");
  }
  drawMemory(sheet, { ...shown, scene: 1 }, layout, new Set());
  return sheet;
}

const dot = (x: number, y: number) => `M${x - 5} ${y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0`;

/** The first step that the two runs compute differently; before it, nothing is drawn twice. */
function forkOf(run: Run, after: Run) {
  const cellsOf = (one: Run, step: number) =>
    NAMES.map((_, place) =>
      step <= one.lastStep ? one.cell(one.person(place), step)?.reads : null,
    );
  const last = Math.max(run.lastStep, after.lastStep);
  for (let step = 1; step <= last; step++)
    if (`${cellsOf(run, step)}` !== `${cellsOf(after, step)}`) return step;
  return null;
}

interface Bar {
  kind: "read" | "again" | "write" | "away";
  from: number;
  to: number;
}

/** What a person's request does, from step to step. */
function bars(run: Run, place: number) {
  const request = run.person(place);
  const found: Bar[] = [];
  if (!request) return found;
  for (let step = Number(request.arrived); step <= run.lastStep; step++) {
    const kind = kindOf(run, request, step);
    const last = found.at(-1);
    if (kind && last?.kind === kind && last.to === step - 1) last.to = step;
    else if (kind) found.push({ kind, from: step, to: step });
  }
  return found;
}

function kindOf(run: Run, request: RequestSpan, step: number): Bar["kind"] | null {
  const cell = run.cell(request, step);
  if (cell) return !cell.reads ? "write" : cell.isAgain ? "again" : "read";
  const isAway = request.preemptions.some(
    (one) => one.step <= step && step < (one.resume ?? Infinity),
  );
  return isAway ? "away" : null;
}

/** "ends 3 steps later". */
function endWords(run: Run, after: Run, place: number) {
  const ends = [run, after].map((one) => one.person(place)?.finished?.step ?? NaN);
  const steps = ends[1] - ends[0];
  if (Number.isNaN(steps)) return "";
  return steps ? `${steps > 0 ? "+" : "−"}${Math.abs(steps)} steps` : "as before";
}
