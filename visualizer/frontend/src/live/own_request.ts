/**
 * One request for the person who sent it: what happens to it in a step in one sentence, its lane, its counts and
 * its blocks. Everything belongs to the step that the board shows.
 */

import { patchChildren } from "../board/patch_children.ts";
import { h } from "../drawing/html.ts";
import { paintSwatch } from "../drawing/marks.ts";
import type { Theme } from "../drawing/palette.ts";
import { wordNodes } from "../drawing/words_html.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { bold, capital, count, type Span, say } from "../model/words.ts";
import type { LiveBoard } from "./live_board.ts";

const STEPS = 30; // in the lane
const BLOCKS = 8;
const COMPUTED = new Set(["prefill", "catchup", "decode"]); // kinds of segments with the request's mark
const FATES: Record<string, string> = { others: "others keep it", cached: "cached", free: "free" };

/** What happens to a request in a step, as spans that address the person who sent it. */
function ownSentence(frame: Frame, id: number): Span[] {
  const { lead, rest } = words(frame, id);
  return rest ? [...bold(say`${lead}`), ...say` ${rest}`] : bold(say`${lead}`);
}

function words(frame: Frame, id: number): { lead: string; rest?: string | Span[] } {
  const { story } = frame;
  const about = frame.decisions.find(
    ({ request, requests }) => request === id || requests?.includes(id),
  );
  const computed = story.rows.find(({ request }) => request === id)?.count ?? 0;
  switch (frame.phase(id).kind) {
    case "future":
      return { lead: "Your request is on its way." };
    case "preempted":
      return about?.kind === "preempted"
        ? { lead: "Your request", rest: about.spans } // "is preempted: ..."
        : { lead: "Your request was preempted and waits.", rest: waiting(frame, id) };
    case "waits":
      return { lead: "Your request waits.", rest: waiting(frame, id) };
    case "prefill": {
      const found = story.admissions.find(({ request }) => request === id)?.found;
      const hit = found ? ` The cache had ${count(found, "token")} before them.` : "";
      return { lead: "Your prompt is computed:", rest: `${count(computed, "token")}.${hit}` };
    }
    case "catchup":
      return {
        lead: "Your request catches up:",
        rest: `it computes ${count(computed, "token")}.`,
      };
    case "decode":
      return { lead: "Your request decodes.", rest: "Each step computes one token." };
    case "stalled":
      return { lead: "Your request gets nothing.", rest: "The step's token budget is spent." };
    case "finished":
      return { lead: ending(frame.model.requestSpan(id)) };
    default:
      return { lead: "Your request is running." };
  }
}

/** Why it waits, and its place in the queue. */
function waiting(frame: Frame, id: number) {
  const place = frame.waiting.indexOf(id);
  const line = place ? `${place} before you.` : "You are first in the queue.";
  const { reason, head } = frame.waitOf(id);
  return reason && head === id
    ? say`${capital(say`${frame.reasonFor(reason, [id])}`)}. ${line}`
    : line;
}

function ending({ finished, maxTokens }: RequestSpan) {
  const endings: Record<string, string> = {
    stop: "Your answer is finished.",
    length: `Your answer has reached its limit of ${count(maxTokens, "token")}.`,
    abort: "Your request was stopped.",
  };
  return endings[finished?.reason ?? ""] ?? "Your request failed.";
}

/** Draws one's own request into `host`. */
export class OwnRequest {
  name = h("h2");
  at = h("p.at.muted");
  sentence = h("p.own-sentence");
  lane = h("div.lane", { role: "img" });
  ends = h("p.ends.muted");
  counts = h("dl");
  blocks = h("ol.own-blocks.row.muted", { "aria-label": "Your blocks" });
  host: HTMLElement;

  constructor(host: HTMLElement) {
    host.append(
      h("div.who.row", this.name, this.at),
      this.sentence,
      this.lane,
      this.ends,
      this.counts,
      this.blocks,
    );
    this.host = host;
  }

  /** Shows a request at the step of the board's frame. Returns whether the log has the request. */
  show({ board, status }: LiveBoard, id: number | null) {
    const { model, theme } = board;
    const span = model?.request(id);
    this.host.hidden = !span;
    if (!span || id == null) return false;
    const { step } = board.store;
    // A board that is out of sight draws no frame of its own.
    const shown = board.frame;
    const frame = shown?.model === model && shown.step === step ? shown : model.frame(step);
    this.host.dataset.step = `${step}`;
    const swatch = h("i", { "aria-hidden": "true" });
    paintSwatch(swatch, theme, model.laneOf(id, step));
    this.name.replaceChildren(swatch, span.name);
    const isPaused = !!status.paused && !status.until;
    const here = isPaused ? `the engine is paused at step ${step}` : `step ${step}`;
    const screen = status.screen == null ? here : `the screen is frozen at step ${status.screen}`;
    this.at.textContent = screen;
    this.host.dataset.paused = `${isPaused}`;
    const context = { model, frame, theme, selected: null };
    patchChildren(this.sentence, wordNodes(ownSentence(frame, id), context));
    this.#drawLane(span, step, theme);
    this.#count(span, frame);
    this.#listBlocks(frame, id);
    return true;
  }

  /** Draws the last steps, or those before its end. */
  #drawLane(span: RequestSpan, now: number, theme: Theme) {
    const step = Math.min(now, span.finished?.step ?? now);
    const first = Math.max(span.segments[0]?.from ?? step, step - STEPS + 1);
    const steps = Math.max(step - first + 1, 10);
    const at = ({ from, to, kind }: { from: number; to: number; kind: string }) => {
      const piece = h("i", { "data-kind": kind });
      piece.style.left = `${(100 * (from - first)) / steps}%`;
      piece.style.width = `${(100 * (to + 1 - from)) / steps}%`;
      if (COMPUTED.has(kind)) paintSwatch(piece, theme, span.lane);
      return piece;
    };
    const pieces = span.segments
      .map(({ kind, from, to }) => ({
        kind,
        from: Math.max(from, first),
        to: Math.min(to ?? step, step),
      }))
      .filter(({ from, to }) => from <= to);
    this.lane.replaceChildren(...pieces.map(at));
    const words = pieces.map(({ from, to, kind }) => `${kind} in ${count(to + 1 - from, "step")}`);
    this.lane.ariaLabel = `Your lane: ${words.join(", ")}`;
    this.ends.replaceChildren(h("span", `step ${first}`), h("span", `step ${step}`));
  }

  #count(span: RequestSpan, frame: Frame) {
    const { measures, firstStep } = frame.model;
    const tokens = span.tokenSteps.filter((at) => at <= frame.step).length;
    const { blocks, lost } = frame.table(span.id);
    const [at] = span.tokenSteps;
    const end = at <= frame.step ? measures.end.at(at - firstStep) : Number.NaN;
    const first = span.arrivedAt == null || !(end > 0) ? "–" : duration(end - span.arrivedAt);
    const entries = [
      [`${tokens} of ${span.maxTokens}`, "tokens"],
      [`${lost ? 0 : blocks.length}`, "blocks"],
      [first, "to first token"],
    ];
    this.counts.replaceChildren(
      ...entries.map(([value, what]) => h("div", h("dd", value), h("dt.muted", what))),
    );
  }

  #listBlocks(frame: Frame, id: number) {
    const { blocks, lost, fates } = frame.table(id);
    const { model } = frame;
    const cells = blocks.slice(0, BLOCKS).map((block, i) => {
      const { owners, filled, slots } = frame.blocks[block];
      const shared = owners.length > 1 ? `shared ×${owners.length}` : `${filled} of ${slots}`;
      const { fate, to } = fates[i] ?? {};
      const words = fate === "taken" ? `→ ${model.tag(to).text}` : FATES[fate];
      return h(
        "li",
        { "data-kind": lost ? "lost" : owners.length > 1 ? "shared" : "own" },
        h("b", String(block)),
        lost ? words : shared,
      );
    });
    if (blocks.length > BLOCKS) cells.push(h("li", `and ${blocks.length - BLOCKS} more`));
    this.blocks.replaceChildren(...cells);
  }
}
