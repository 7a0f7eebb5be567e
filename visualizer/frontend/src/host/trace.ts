/**
 * A trace of a log for the Perfetto UI, made in the browser: the steps with counters, and a track per request with
 * the causes of its time, as in the waterfall. `to_perfetto` in Python writes more: evictions, arrows, drafts.
 *
 * Format: "Trace Event Format" (Google, 2016), JSON object form. Times are in microseconds; if the log has none, a
 * step takes one millisecond.
 */

import type { Model } from "../model/model.ts";
import { causeName } from "../model/waterfall_words.ts";

const ENGINE = 1;
const REQUESTS = 2;
const UNTIMED = 1000; // microseconds of a step without times

/** The bytes of the trace. */
export function traceOf(model: Model) {
  const scale = model.waterfall.unit === "us" ? 1 : UNTIMED;
  const traceEvents = [...engineEvents(model, scale), ...requestEvents(model, scale)];
  const otherData = { made_by: "Underglass", settings: model.settings };
  return new TextEncoder().encode(
    JSON.stringify({ displayTimeUnit: "ms", traceEvents, otherData }),
  );
}

function named(kind: "process" | "thread", pid: number, tid: number, name: string) {
  return { ph: "M", pid, tid, name: `${kind}_name`, args: { name } };
}

function engineEvents({ measures, firstStep, stepCount, settings }: Model, scale: number) {
  const events = [named("process", ENGINE, 0, "engine"), named("thread", ENGINE, 1, "steps")];
  const add = (event: object) => events.push({ pid: ENGINE, ...event } as any);
  const before = new Map();
  const count = (name: string, ts: number, args: object) => {
    const key = JSON.stringify(args);
    if (before.get(name) !== key) add({ ph: "C", tid: 0, ts, name, args });
    before.set(name, key);
  };
  for (let i = 0; i < stepCount; i += 1) {
    const isAsync = settings.async_scheduling && !Number.isNaN(measures.launched.at(i));
    const begins = isAsync ? measures.launched.at(i) : measures.start.at(i);
    const ends = isAsync ? measures.ready.at(i) : measures.end.at(i);
    const [ts, end] = scale === 1 ? [begins, ends] : [i * scale, (i + 1) * scale];
    if (Number.isNaN(ts) || Number.isNaN(end)) continue;
    const [prefill, decode] = [
      measures.prefill.at(i),
      measures.decode.at(i) + measures.catchup.at(i),
    ];
    const args = { tokens: measures.tokens.at(i), prefill, decode, output: measures.output.at(i) };
    add({ ph: "X", tid: 1, ts, dur: end - ts, name: `step ${firstStep + i}`, args });
    const used = measures.used.at(i);
    count("KV blocks", ts, { used, cached: measures.cached.at(i), free: measures.free.at(i) });
    count("requests", ts, { running: measures.running.at(i), waiting: measures.waiting.at(i) });
    count("tokens per step", ts, { prefill, decode });
  }
  return events;
}

function requestEvents(model: Model, scale: number) {
  const events = [named("process", REQUESTS, 0, "requests")] as object[];
  const nameOf = (id: number | null) => model.request(id)?.name ?? `r${id}`;
  for (const { request, spans } of model.waterfall.all()) {
    if (!spans.length) continue;
    const name = nameOf(request.id);
    const track = { ph: "X", pid: REQUESTS, tid: request.id };
    const slice = (from: number, to: number, rest: object) =>
      events.push({ ...track, ts: from * scale, dur: (to - from) * scale, ...rest });
    events.push(named("thread", REQUESTS, request.id, name));
    const args = { ended: request.finished?.reason ?? "not yet" };
    slice(spans[0].start, spans[spans.length - 1].end, { name, args });
    for (const { start, end, cause, step, about } of spans) {
      const who = about === null ? {} : { request: nameOf(about) };
      slice(start, end, { name: causeName(cause), args: { step, ...who } });
    }
  }
  return events;
}
