/**
 * The slots for LoRA adapters at the end of a step, each with its adapter and the requests in the batch that use it. A slot
 * is hatched, like a cached block, if no request uses it: another adapter may replace its own. An arrow marks what came.
 */

import type { CanvasPainter } from "../drawing/canvas_painter.ts";
import { plural } from "../drawing/html.ts";
import { adapterOf, hasAdapters } from "../model/adapters.ts";
import type { Frame } from "../model/frame.ts";
import { list, plain } from "../model/words.ts";
import type { PlaceRow } from "./places_panel.ts";

// px
const LEAST = 110; // of a slot
const PITCH = 26;
const HEIGHT = 22;
const GAP = 6;
const MARK = 9;
const MOST_LINES = 3;
const NAME = { size: 11, bold: true };

/** A slot, the requests that use its adapter, and what happened to it in the step. */
function slotOf({ model, state, story }: Frame, slot: number) {
  const adapter = state.adapters[slot] ?? "";
  const users = state.running
    .map((id) => model.requestSpan(id))
    .filter((span) => adapter && adapterOf(span) === adapter);
  const change = story.slots.findLast((one) => one.slot === slot);
  const came = adapter && change?.adapter === adapter;
  const names = plain(list(users.map(({ name }) => name)));
  const use = users.length ? `used by ${names}` : "used by no request";
  const words = `slot ${slot}: ${adapter ? `${adapter}, ${use}` : "empty"}`;
  return { adapter, users, came, words, left: change?.evicted };
}

/** The adapters' slots, if a request of the log has an adapter. */
export function adapterRows(frame: Frame, width: number): PlaceRow[] {
  const { model, state } = frame;
  if (!hasAdapters(model)) return [];
  const all = Number(state.settings.max_loras);
  const columns = Math.max(1, Math.min(all, Math.floor(width / LEAST)));
  const shown = Math.min(all, MOST_LINES * columns);
  const slots = Array.from({ length: shown }, (_, slot) => slotOf(frame, slot));
  const wait = frame.waiting.filter((id) => frame.waitOf(id).reason === "adapter_slot");
  const names = plain(
    list(
      wait.map((id) => model.requestSpan(id).name),
      2,
    ),
  );
  const used = new Set(state.running.map((id) => adapterOf(model.requestSpan(id))));
  const words = [
    `${state.adapters.filter((one) => used.has(one)).length} of ${plural(all, "slot")} in use`,
    ...slots.map(({ came, adapter }) => came && `${adapter} came`),
    ...slots.map(({ left }) => left && `${left} left`),
    wait.length && `${names} ${wait.length > 1 ? "wait" : "waits"} for a slot`,
    shown < all && `${all - shown} more are not drawn`,
  ];
  const pitch = Math.floor((width + GAP) / columns);
  return [
    {
      name: "Adapters",
      words: words.filter(Boolean).join(", "),
      label: slots.map((one) => one.words).join("; "),
      height: Math.ceil(shown / columns) * PITCH - PITCH + HEIGHT,
      draw(painter, top) {
        for (const [slot, one] of slots.entries()) {
          const y = top + Math.floor(slot / columns) * PITCH;
          drawSlot(painter, one, (slot % columns) * pitch, y, pitch - GAP);
        }
      },
      describe(x, y) {
        const slot = slots[Math.floor(y / PITCH) * columns + Math.floor(x / pitch)];
        return slot && x < columns * pitch ? [slot.words] : null;
      },
    },
  ];
}

function drawSlot(
  painter: CanvasPainter,
  { adapter, users, came }: ReturnType<typeof slotOf>,
  left: number,
  y: number,
  width: number,
) {
  const { ink, muted, faint, hatch, ground: plate } = painter.theme;
  const base = y + 15;
  const end = left + width - 4;
  if (adapter && !users.length) painter.cached(left, y, width, HEIGHT, hatch);
  else
    painter.frame(left, y, width, HEIGHT, came ? ink : faint, came ? 2 : 1, adapter ? [] : [3, 2]);
  if (came) painter.tip(left + 9, y + 14, "down", ink);
  let x = left + (came ? 18 : 7);
  const name = painter.cutName(adapter || "empty", end - x, NAME);
  painter.text(name, x, base, adapter ? { ...NAME, plate } : { color: muted });
  x += painter.measure(name, NAME) + 8;
  const widths = users.map((span) => MARK + 3 + painter.measure(span.name) + 7);
  const isNamed = x + widths.reduce((sum, one) => sum + one, 0) <= end + 7;
  const fits = isNamed ? users.length : Math.floor((end - 18 - x) / (MARK + 2));
  for (const [i, span] of users.slice(0, Math.max(0, fits)).entries()) {
    painter.mark(x, y + 7, MARK, MARK, span.lane);
    if (isNamed) painter.text(span.name, x + MARK + 3, base);
    x += isNamed ? widths[i] : MARK + 2;
  }
  const rest = users.length - fits;
  if (rest > 0 && fits >= 0) painter.text(`+${rest}`, x, base, { color: muted });
}
