/**
 * The slots for LoRA adapters at the end of a step, each with its adapter and the requests in the batch that use it. A slot
 * is hatched, like a cached block, if no request uses it: another adapter may replace its own. An arrow marks what came.
 */

import { plural } from "../drawing/html.ts";
import { drawOwnerTicks } from "../drawing/tree.ts";
import { adapterOf, hasAdapters } from "../model/adapters.ts";
import type { Frame } from "../model/frame.ts";
import { list, plain } from "../model/words.ts";
import type { PlaceRow } from "./places_panel.ts";

const MOST = 40; // slots
// px
const LEAST = 110; // of a slot
const PITCH = 28;
const HEIGHT = 23;
const GAP = 6;
const NAME = { size: 11, bold: true };

/** The adapters' slots, if a request of the log has an adapter. */
export function adapterRows(frame: Frame, width: number): PlaceRow[] {
  const { model, state, story } = frame;
  if (!hasAdapters(model)) return [];
  const all = Number(state.settings.max_loras);
  const columns = Math.max(1, Math.min(all, Math.floor(width / LEAST)));
  const pitch = Math.floor((width + GAP) / columns);
  const namesOf = (ids: number[]) => plain(list(ids.map((id) => model.tag(id))));
  const slots = Array.from({ length: Math.min(all, MOST) }, (_, slot) => {
    const adapter = state.adapters[slot] ?? "";
    const users = state.running.filter(
      (id) => adapter && adapterOf(model.requestSpan(id)) === adapter,
    );
    const change = story.slots.findLast((one) => one.slot === slot);
    return { adapter, users, names: namesOf(users) || "no request", change };
  });
  const wordsOf = (slot: number) => {
    const { adapter, names } = slots[slot];
    return `slot ${slot}: ${adapter ? `${adapter}, used by ${names}` : "empty"}`;
  };
  const used = new Set(state.running.map((id) => adapterOf(model.requestSpan(id)) || null));
  const wait = frame.waiting.filter((id) => frame.waitOf(id).reason === "adapter_slot");
  const words = [
    `${state.adapters.filter((one) => used.has(one)).length} of ${plural(all, "slot")} in use`,
    ...story.slots.map(({ adapter }) => adapter && `${adapter} came`),
    ...story.slots.map(({ evicted }) => evicted && `${evicted} left`),
    wait.length && `waiting for a slot: ${namesOf(wait)}`,
    all > MOST && `the first ${MOST} are drawn`,
  ];
  return [
    {
      name: "Adapters",
      words,
      label: slots.map((_, slot) => wordsOf(slot)),
      height: Math.ceil(slots.length / columns) * PITCH + HEIGHT - PITCH,
      draw(painter, top) {
        const { ink, muted: color, faint, ground: plate } = painter.theme;
        for (const [slot, { adapter, users, names, change }] of slots.entries()) {
          let x = (slot % columns) * pitch;
          const y = top + Math.floor(slot / columns) * PITCH;
          const room = pitch - GAP;
          const end = x + room - 4;
          if (adapter && !users.length) painter.cached(x, y, room, HEIGHT);
          else painter.frame(x, y, room, HEIGHT, adapter ? ink : faint, 1, adapter ? [] : [3, 2]);
          if (users.length) drawOwnerTicks(painter, frame, users, x, y + HEIGHT - 4, room);
          if (change?.adapter) painter.tip(x + 10, y + 13, "down", ink);
          x += change?.adapter ? 18 : 6;
          const name = painter.cutName(adapter || "empty", end - x, NAME);
          painter.text(name, x, y + 13, adapter ? { ...NAME, plate } : { color });
          x += painter.measure(name, NAME) + 6;
          if (adapter) painter.text(painter.cut(names, end - x), x, y + 13, { color, plate });
        }
      },
      describe(x, y) {
        const slot = Math.floor(y / PITCH) * columns + Math.floor(x / pitch);
        return slots[slot] && x < columns * pitch ? [wordsOf(slot)] : null;
      },
    },
  ];
}
