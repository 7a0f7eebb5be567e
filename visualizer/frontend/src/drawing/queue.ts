/** Draws the rows of the open queue. */

import { adapterWords } from "../model/adapters.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { isSecret } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";
import { type RequestSpan, waitIn } from "../model/request_spans.ts";
import { blockerWords, type Waiting } from "../model/stuck.ts";
import type { CanvasPainter } from "./canvas_painter.ts";
import { fillCause } from "./causes.ts";
import { type CursorScene, cursorBand, cursorLines } from "./cursor.ts";
import { plural } from "./html.ts";
import { BEHIND } from "./waiting_band.ts";

/** rest: requests that do not fit */
export type Rows = { shown: number[]; rest: number; pitch: number };

type QueueScene = CursorScene &
  Rows & {
    model: Model;
    frame: Frame;
    columns: { stateAt: number };
    selected: number | null;
    ages: Map<number, Waiting>;
  };

type Wait = { from: number; to: number; isPreempted: boolean; base: number };

const PITCH = 26;
const BAR = 8;
const NARROW = 400; // px: then only its age and its blocker are written

/** The requests that fit, front to back; the selected one is always among them. `rest` counts the others. */
export function queueRows(
  { waiting }: Pick<Frame, "waiting">,
  selected: number | null,
  room: number,
): Rows {
  const most = Math.max(1, Math.floor(room / PITCH));
  if (waiting.length <= most) return { shown: waiting, rest: 0, pitch: PITCH };
  const shown = waiting.slice(0, most - 1);
  if (selected !== null && waiting.includes(selected) && !shown.includes(selected))
    shown[shown.length - 1] = selected;
  return { shown, rest: waiting.length - shown.length, pitch: PITCH };
}

export function drawQueue(painter: CanvasPainter, scene: QueueScene) {
  const { shown, rest, pitch, model } = scene;
  const height = (shown.length + (rest ? 1 : 0)) * pitch;
  cursorBand(painter, scene, 0, height);
  shown.forEach((id, row) => drawRow(painter, scene, model.requestSpan(id), (row + 1) * pitch - 8));
  cursorLines(painter, scene, 0, height);
  const { muted: color } = painter.theme;
  if (rest) painter.text(`and ${plural(rest, "more request")}`, 0, height - 8, { color });
  if (!shown.length) painter.text("No request waits at the end of this step.", 0, 16, { color });
}

function drawRow(painter: CanvasPainter, scene: QueueScene, span: RequestSpan, base: number) {
  const { scale, model, columns, step, selected } = scene;
  const { muted, ink, rule } = painter.theme;
  const segment = waitIn(span, step);
  const from = segment?.from ?? step;
  const to = segment?.to ?? model.lastStep;
  painter.mark(0, base - 10, 10, 10, model.laneOf(span.id, step));
  const name = painter.cutName(span.name, columns.stateAt - 17, { bold: true });
  painter.text(name, 13, base, { bold: true });
  if (span.id === selected)
    painter.fill(13, base + 2.5, painter.measure(name, { bold: true }), 2, ink);
  painter.text(plural(step - from + 1, "step"), columns.stateAt, base, { color: muted });
  painter.line(scale.left, base + 0.5, scale.right, base + 0.5, rule);
  const isPreempted = segment?.kind === "preempted";
  drawReasons(painter, scene, span, { from, to, isPreempted, base });
  const ended = segment?.to != null;
  const x = Math.min(Math.max(scale.end(to), scale.left), scale.right);
  if (ended && scale.end(to) < scale.right && scale.end(to) >= scale.left)
    painter.mark(x, base - BAR - 3, 11, BAR + 3, span.lane);
  const all = rowWords(scene, span, { isPreempted, admitted: ended ? to + 1 : null });
  const words = painter.cut(all, scale.right - scale.left);
  const size = painter.measure(words);
  const place = Math.max(scale.left, Math.min(x + 16, scale.right - size));
  painter.fill(place - 3, base - 11, size + 6, 11, painter.theme.ground);
  painter.text(words, place, base - 2, {
    color: muted,
    halo: painter.theme.ground,
  });
}

/** A cell per step, or per pixel if steps are narrower. */
function drawReasons(
  painter: CanvasPainter,
  { scale, model }: QueueScene,
  span: RequestSpan,
  { from, to, isPreempted, base }: Wait,
) {
  const stride = Math.max(1, Math.ceil(1 / scale.width));
  const slit = scale.width >= 4 ? 0.5 : 0;
  const last = Math.min(to, scale.last);
  for (let step = Math.max(from, scale.first); step <= last; step += stride) {
    const { reason, head } = model.waitAt(step, span.id);
    const cause = isPreempted ? "preempted" : reason;
    if (!cause) continue;
    const x = scale.x(step) + slit;
    const width = Math.max(0.5, scale.end(Math.min(last, step + stride - 1)) - x - slit);
    painter.faded(isPreempted || head === span.id ? 1 : BEHIND, () =>
      fillCause(painter, cause, [x, base - BAR, width, BAR]),
    );
  }
}

/** "2.1 s old; behind Ada; needs 3 blocks; admitted at step 39". */
function rowWords(
  { frame, model, ages, scale }: QueueScene,
  span: RequestSpan,
  { isPreempted, admitted }: { isPreempted: boolean; admitted: number | null },
) {
  const { state } = frame;
  const { length, num_seqs: slots } = state.request(span.id);
  // Without token ids, what it would find in the cache is unknown.
  const isKnown = !isSecret(span.tokens);
  const { tokens } = frame.path(span.id);
  const blocks = Math.ceil(length / state.blockSize) - tokens / state.blockSize;
  const needs = `needs ${plural(blocks, "block")}${slots > 1 ? ` and ${slots} seats` : ""}`;
  const found = tokens ? `, finds ${plural(tokens, "token")} cached` : "";
  const then = admitted === null ? "not admitted in this log" : `admitted at step ${admitted}`;
  const waiting = ages.get(span.id);
  const lead = [
    adapterWords(span),
    isPreempted && "preempted",
    waiting?.age != null && `${duration(waiting.age)} old`,
    waiting && blockerWords(model, waiting),
  ];
  const isNarrow = scale.right - scale.left < NARROW;
  const all = isNarrow ? lead : [...lead, isKnown && `${needs}${found}`, then];
  return all.filter(Boolean).join("; ");
}
