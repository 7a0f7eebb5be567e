/** What the visitor may change in each scene, and the sentence about the consequence, made of the logs of both runs. */

import type { RequestSpan } from "../model/request_spans.ts";
import { capital, count, type Span, say } from "../model/words.ts";
import { longReading, sentAway } from "./facts.ts";
import { type Run, YOU } from "./run.ts";
import { seconds } from "./sentences.ts";

/** `settings` is what `page_front.py` changes: settings of the engine, or another victim. */
export interface Choice {
  title: string;
  detail: string;
  settings: Record<string, number | string | boolean>;
}

/** The choices of a scene, from 1. */
export function choicesOf(run: Run, scene: number): Choice[] {
  const { settings } = run.model;
  const budget: number = settings.token_budget;
  const blocks: number = settings.num_blocks;
  const size: number = settings.block_size;
  if (scene === 1)
    return [
      seats(1, "each request waits until the one before has ended"),
      seats(2, "only two requests are served at a time"),
    ];
  if (scene === 2) {
    const long = longReading(run, run.lastStep);
    const whole = Math.max(long?.tokens ?? 0, budget) + (run.you?.promptLength ?? 0) + 8;
    return [
      {
        title: "Not cut at all?",
        detail: `up to ${whole} tokens in a step`,
        settings: { token_budget: whole },
      },
      {
        title: "Smaller pieces?",
        detail: `${budget / 2} tokens in a step instead of ${budget}`,
        settings: { token_budget: budget / 2 },
      },
      {
        title: "Short questions first?",
        detail: "the queue is sorted by the length of the work",
        settings: { policy: "sjf" },
      },
    ];
  }
  if (scene === 3)
    return [
      {
        title: "Share nothing?",
        detail: "everyone’s beginning is read and stored again",
        settings: { prefix_cache: "off" },
      },
      {
        title: "Smaller blocks?",
        detail: `${size / 2} tokens instead of ${size}, in the same memory`,
        settings: { block_size: size / 2 },
      },
    ];
  if (scene !== 4) return [];
  const away = sentAway(run);
  const others = away && run.model.frame(away.step).running.map((id) => run.model.requestSpan(id));
  const victim = others?.findLast((one) => one !== away?.request && one !== away?.by);
  return [
    {
      title: "More memory?",
      detail: `${2 * blocks} blocks instead of ${blocks}`,
      settings: { max_kv_tokens: 2 * blocks * size },
    },
    seats(3, "3 instead of 4: the last one waits until a seat is free"),
    ...(away && victim
      ? [
          {
            title: `Send ${victim.name} away?`,
            detail: `${victim.name} gives the memory back instead`,
            settings: { victim: victim.id, step: away.step },
          },
        ]
      : []),
  ];
}

const seats = (number: number, detail: string): Choice => ({
  title: number === 1 ? "Only one seat?" : `Only ${number} seats?`,
  detail,
  settings: { max_batch_size: number },
});

/** How a request fared: steps from its arrival to its first and last token, and the same in microseconds. */
function fare(run: Run, request: RequestSpan) {
  const arrived = Number(request.arrived);
  const { firstToken, total } = run.model.waterfall.of(request.id);
  return {
    first: request.tokenSteps[0] - arrived,
    last: Number(request.finished?.step ?? run.lastStep) - arrived,
    firstUs: Number(firstToken),
    totalUs: total,
  };
}

/** The difference in a sentence. `before` has predicted times, as `after` has: see `page_front.py`. */
export function consequence(before: Run, after: Run): Span[] {
  const you = [before.you, after.you];
  if (!you[0] || !you[1]) return say`Your request was not served.`;
  const [old, now] = [fare(before, you[0]), fare(after, you[1])];
  const first = moved("your first token comes", now.first - old.first, now.firstUs - old.firstUs);
  const last = moved("your last", now.last - old.last, now.totalUs - old.totalUs);
  return say`${capital(say`${first}`)}, and ${last}. ${others(before, after)}${losses(before, after)}`;
}

/** "your last 3 steps later, after about 0.20 seconds more". */
function moved(what: string, steps: number, us: number) {
  const isOpposed = steps * us < 0;
  const time =
    Number.isNaN(us) || Math.abs(us) < 2000
      ? ""
      : isOpposed
        ? `, yet about ${seconds(Math.abs(us))} ${us < 0 ? "sooner, because steps are shorter" : "later, because steps are longer"}`
        : ` (about ${seconds(Math.abs(us))} ${us < 0 ? "sooner" : "later"})`;
  if (!steps) return `${what} in the same step${time}`;
  return `${what} ${count(Math.abs(steps), "step")} ${steps < 0 ? "sooner" : "later"}${time}`;
}

/** The person whose end moved most. */
function others(before: Run, after: Run): Span[] {
  let most: { name: string; id: number; steps: number } | null = null;
  for (let place = 0; place < YOU; place++) {
    const [old, now] = [before.person(place), after.person(place)];
    if (!old?.finished || !now?.finished) continue;
    const steps = fare(after, now).last - fare(before, old).last;
    if (steps && Math.abs(steps) > Math.abs(most?.steps ?? 0))
      most = { name: old.name, id: old.id, steps };
  }
  if (!most) return say`For the others, nothing changes. `;
  const name: Span = { text: most.name, request: most.id, bold: true };
  return say`${name} ends ${count(Math.abs(most.steps), "step")} ${most.steps < 0 ? "sooner" : "later"}. `;
}

function losses(before: Run, after: Run) {
  const [old, now] = [before, after].map(({ model }) =>
    model.requests.filter(({ preemptions }) => preemptions.length).map(({ name }) => name),
  );
  const named = (names: string[]) =>
    names.map((name) => (name === "You" ? "you" : name)).join(" and ");
  if (!old.length && !now.length) return "";
  if (!now.length) return "No request has to give its memory back.";
  if (named(old) === named(now)) return "";
  return `Memory is taken from ${named(now)}${old.length ? ` instead of from ${named(old)}` : ""}.`;
}
