/** The text of tooltips: lines about the thing under the pointer. */

import { plural } from "../drawing/html.ts";
import { adapterOfBlock, adapterWords } from "../model/adapters.ts";
import { duration } from "../model/duration.ts";
import type { Frame } from "../model/frame.ts";
import { plain } from "../model/index.ts";
import { gapWords, halfDot, lacks } from "../model/knowledge.ts";
import { stalledWords, text, wastedWords } from "../model/messages.ts";
import type { Model } from "../model/model.ts";
import { happenedWords } from "../model/moments.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { rowWasted } from "../model/request_spans.ts";
import { waitWords } from "../model/waits.ts";
import { list } from "../model/words.ts";

/** an object: text of the log, in a fixed-width font */
export type Line = string | { text: string };

/** Describes a request at a step of the timeline, or the step if the pointer is on the strip. */
export function describeLane(
  model: Model,
  cursor: number,
  { step, inPlot, span }: { step: number; inPlot: boolean; span: RequestSpan | null },
  onLanes: boolean,
): Line[] | null {
  if (!onLanes) return inPlot ? describeStep(model, step) : null;
  if (!span) return null;
  const at = inPlot ? step : cursor;
  const adapter = adapterWords(span);
  const head = `${span.label && span.label !== span.name ? `${span.name}, ${span.label}` : span.name}: ${span.promptLength} prompt tokens, at most ${span.maxTokens} output tokens${adapter && `, ${adapter}`}`;
  const wasted = rowWasted(span, at);
  const words = describeSegment(model, span, at);
  return [head, `step ${at}: ${words}${wasted ? `, ${wastedWords(wasted)}` : ""}`];
}

export function describeStep(model: Model, step: number) {
  const i = step - model.firstStep;
  const { tokens, prefill, decode, used, cached, free, waiting, start, end, happened, drafting } =
    model.measures;
  const took = end.at(i) - start.at(i);
  const computed = lacks(model, "scheduled_tokens")
    ? ""
    : `: ${plural(tokens.at(i), "token")}, ${prefill.at(i)} prefill, ${decode.at(i)} decode`;
  const memory = [
    !lacks(model, "block_tables") && `${used.at(i)} blocks used`,
    !lacks(model, "prefix_tree") && `${cached.at(i)} cached`,
    !lacks(model, "free_blocks") && `${free.at(i)} free`,
  ].filter(Boolean);
  const queue = !lacks(model, "queue") && `${waiting.at(i)} waiting`;
  const lines = [`step ${step}${computed}`];
  const counts = [memory.join(", "), queue].filter(Boolean).join("; ");
  if (counts) lines.push(counts);
  const words = happenedWords(happened.at(i));
  if (words) lines.push(words);
  for (const gap of model.gaps.get(step) ?? []) lines.push(gapWords(gap));
  if (model.settings.async_scheduling) lines.push(...describeOverlap(model, step));
  else if (took > 0) {
    const draft = drafting.at(i) > 0 ? `, ${duration(drafting.at(i))} of it the draft model` : "";
    lines.push(`took ${halfDot(model, "step_times")}${duration(took)}${draft}`);
  }
  return lines;
}

/** Asynchronous scheduling: how long the step was scheduled and computed, and what was computed meanwhile. */
function describeOverlap({ measures, firstStep }: Model, step: number) {
  const i = step - firstStep;
  const scheduling = measures.scheduled.at(i) - measures.start.at(i);
  const pass = measures.ready.at(i) - measures.launched.at(i);
  const lines = [overlapWords(measures.computed(step))];
  if (scheduling >= 0)
    lines.push(
      `step ${step}: scheduling took ${duration(scheduling)}${pass >= 0 ? `, its forward pass ${duration(pass)}` : ""}`,
    );
  return lines;
}

/** "meanwhile step 7 is computed". */
export function overlapWords(passes: number[]) {
  if (!passes.length) return "meanwhile no step is computed";
  const are = passes.length > 1 ? "are" : "is";
  return `meanwhile step ${listed(passes.map(String))} ${are} computed`;
}

function describeSegment(model: Model, span: RequestSpan, step: number) {
  if (span.arrived != null && step < span.arrived) return "not arrived yet";
  if (span.finished && step > span.finished.step)
    return `finished at step ${span.finished.step}: ${span.finished.reason}`;
  const segment = span.segments.find(
    ({ from, to }) => from <= step && step <= (to ?? model.lastStep),
  );
  if (!segment) return "no tokens to compute";
  switch (segment.kind) {
    case "waiting": {
      const why = waitWords(model, step, span.id);
      return why ? `waits, ${halfDot(model, "waiting_reasons")}${why}` : "waits";
    }
    case "preempted":
      return `preempted${lacks(model, "preemption_causes") ? "" : `, ${halfDot(model, "preemption_causes")}${model.request(segment.by)?.name ?? "another"} needed its blocks`}${segment.resume ? `; resumes at step ${segment.resume}` : ""}`;
    case "prefill":
    case "catchup": {
      const { start = 0, count = 0 } = segment;
      const range = `tokens ${start + 1} to ${start + count}`;
      const found = segment.found ? `, ${segment.found} more found in the cache` : "";
      const again = segment.recomputed ? `, ${segment.recomputed} of them computed before` : "";
      return `${segment.kind === "prefill" ? "prefill" : "recompute"}, ${range}${found}${again}`;
    }
    case "stalled":
      return text(stalledWords[String(segment.reason)], {
        requests: 1,
        budget: model.settings.token_budget,
      });
    default:
      return segment.drafts
        ? `decode, ${segment.accepted} of ${segment.drafts} drafts accepted`
        : "decode, one token";
  }
}

/** Describes a block: its owners and its content. */
export function describeBlock(model: Model, frame: Frame, id: number): Line[] | null {
  const block = frame.blocks[id];
  if (!block) return null;
  const names = block.owners.map((owner) => model.requestSpan(owner).name);
  const held = {
    free: "free",
    cached: "cached, in use by no request",
    unshared: `held by ${names[0]}`,
    shared: `shared by ${listed(names)}`,
  }[block.kind];
  const lines: Line[] = [`block ${id}: ${held}`];
  if (block.kind === "free") return lines;
  const tree = block.node
    ? `in the prefix tree (node ${block.node})`
    : "not in the prefix tree yet";
  lines.push(`${block.filled} of ${block.slots} slots filled, ${tree}`);
  const adapter = adapterOfBlock(frame, id);
  if (adapter) lines.push(`KV of the adapter ${adapter}`);
  const groups = frame.state.source.groups;
  if (groups) lines.push(`KV of ${groups[block.group]}`);
  else if (block.isCut) lines.push("no window page: sliding layers no longer have its KV");
  const text = frame.blockTexts(id).join("");
  if (text) lines.push({ text: text.replace(/\n/g, "⏎") });
  return lines;
}

/** "a, b and c". */
export const listed = (names: string[]) => plain(list(names, names.length));

export const textOf = (line: Line) => (typeof line === "string" ? line : line.text);

/** The class of a line's element. */
export const classOf = (line: Line) => (typeof line === "string" ? null : "mono");
