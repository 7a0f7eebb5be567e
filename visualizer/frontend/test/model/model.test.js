import assert from "node:assert/strict";
import test from "node:test";
import {
  LogError,
  Model,
  openingRequest,
  openingStep,
  plain,
  reasonWords,
  State,
} from "../../src/model/index.ts";
import { keyframe } from "../../src/model/keyframe.ts";
import { partWords } from "../../src/model/knowledge.ts";
import { rowKind } from "../../src/model/request_spans.ts";
import { waitWords } from "../../src/model/waits.ts";
import { assertNames, names } from "../facts.js";
import { core } from "./core.js";
import * as make from "./events.js";

const { admitted, allocated, arrived, finished, inserted, scheduled, started, step } = make;

const model = (...events) => new Model(events.flat(Infinity));

/** Step 1: r1 computes "abcde". Before step 2 r2 arrives with "abcdx" and hits four tokens. */
const firstStep = [
  arrived(1, "abcde", { at: 100 }),
  step(1),
  admitted(1),
  allocated(1, 0, 1, 2),
  scheduled([[1, 0, 5]]),
  finished([[1, "f"]], { start: 100, scheduled: 110, end: 400, logprobs: [[Math.log(0.5)]] }),
  inserted(1, 1, 0, 0, 1),
];
const secondStep = [
  arrived(2, "abcdx", { at: 450, max_tokens: 2 }),
  step(2),
  admitted(2, 1, [0, 1]),
  allocated(2, 3),
  scheduled([
    [1, 5, 1],
    [2, 4, 1],
  ]),
  finished(
    [
      [1, "g"],
      [2, "y"],
    ],
    { start: 500, scheduled: 510, end: 700, logprobs: [[0], [-1]] },
  ),
  make.extended(1, 1, 2),
];

test("no steps, no frames", () => {
  assert.equal(model().stepCount, 0);
  assert.equal(model(started()).stepCount, 0);
  assert.throws(
    () => model(started()).frame(1),
    (error) => names(error.message, 1),
  );
  assert.equal(openingRequest(model()), null);
});

test("a log that begins with a keyframe is a part of a run, and so is one that lacks its end", () => {
  const whole = model(started(), firstStep);
  assert.equal(partWords(whole), "");
  assert.match(partWords(whole, 2000), /\b1 to 1 of 2,000$/);
  const state = whole.stateAt(1).copy();
  const cut = new Model([
    JSON.parse(JSON.stringify(keyframe(state))),
    { type: "step_started", step: 2 },
  ]);
  assert.match(partWords(cut), /\b2 to 2 of 2$/);
});

test("a step ends with its commit; arrivals, aborts and clearings belong to the next", () => {
  const one = model(started(), firstStep, arrived(2, "x"), make.ended(2, "abort"));
  assert.deepEqual(
    make.stepsOf(one).map(({ status }) => status),
    ["finished", "pending"],
  );
  assert.deepEqual(one.frame(1).waiting, []);
  assert.deepEqual(
    one.frame(2).outcomes.map(({ kind }) => kind),
    ["arrived", "aborted"],
  );
  assert.equal(one.stepOf(7), 1);
  assert.equal(one.stepOf(8), 2);
});

test("a request ends in its last step; an abort right after a commit appears in the next step", () => {
  const aborted = model(started(), firstStep, make.ended(1, "abort"));
  assert.deepEqual([aborted.stepCount, aborted.request(1).finished.step], [2, 1]);
  assert.equal(aborted.frame(1).phase(1).kind, "prefill");
  const stopped = model(started(), firstStep, make.ended(1, "stop"));
  assert.deepEqual([stopped.stepCount, stopped.request(1).finished.step], [1, 1]);
});

test("a paused engine: requests wait for a step that has not begun", () => {
  const held = model(started(), arrived(1, "a"), arrived(2, "b"));
  assert.deepEqual([held.firstStep, held.lastStep], [1, 1]);
  assert.equal(held.frame(1).status, "pending");
  assert.deepEqual(
    held.frame(1).waiting.map((id) => held.frame(1).waitOf(id).reason),
    [null, null],
  );
});

test("a log that ends inside a step", () => {
  const torn = model(started(), firstStep, secondStep.slice(0, 5));
  assert.equal(torn.frame(2).status, "running");
  assert.deepEqual(torn.frame(2).budget, { budget: 8, tokens: 2 });
  assert.equal(torn.frame(2).time, null);
});

test("measures have one value per step", () => {
  const { measures } = model(started(), firstStep, secondStep);
  const values = (name) => [...measures[name]];
  assert.deepEqual(values("tokens"), [5, 2]);
  assert.deepEqual(values("prefill"), [5, 1]);
  assert.deepEqual(values("decode"), [0, 1]);
  assert.deepEqual(values("used"), [3, 4]);
  assert.deepEqual(values("shared"), [0, 2]);
  assert.deepEqual(values("free"), [3, 2]);
  assert.deepEqual(values("found"), [0, 4]);
  assert.deepEqual(values("output"), [1, 2]);
  assert.deepEqual(values("end"), [400, 700]);
  assert.deepEqual(measures.chunks(2), [{ request: 2, count: 1 }]);
});

test("times are NaN if the log has none", () => {
  const { measures } = model(started(), arrived(1, "a"), step(1), scheduled([]), finished());
  assert.deepEqual([...measures.end], [NaN]);
});

test("a request span has arrival, segments, tokens and end", () => {
  const span = model(started(), firstStep, secondStep, make.ended(2)).request(2);
  assert.equal(span.arrived, 2);
  assert.equal(span.arrivedAt, 450);
  assert.deepEqual(span.tokenSteps, [2]);
  assert.equal(span.texts.join(""), "abcdxy");
  assert.deepEqual(span.segments, [
    {
      kind: "prefill",
      from: 2,
      to: 2,
      start: 4,
      count: 1,
      found: 4,
      recomputed: 0,
      drafts: 0,
      accepted: 0,
      reachesOutput: false,
    },
  ]);
  assert.deepEqual(span.finished, { step: 2, reason: "length", message: "", seq: 15 });
});

test("the kind of a row", () => {
  const kind = (start, count, length, drafts = []) =>
    rowKind([1, start, count, drafts], { prompt_length: 4, length });
  assert.equal(kind(0, 4, 4), "prefill");
  assert.equal(kind(3, 1, 4), "prefill", "a last prompt chunk of one token is no decode");
  assert.equal(kind(2, 5, 7), "prefill", "it begins in the prompt");
  assert.equal(kind(4, 1, 5), "decode");
  assert.equal(kind(4, 3, 5, [7, 8]), "decode", "drafts are no tokens yet");
  assert.equal(kind(4, 3, 7), "catchup", "forced or recomputed");
  assert.equal(kind(4, 1, 7), "catchup", "cut by the budget");
});

test("a run of decodes ends at a step without one", () => {
  const decode = (number, start) => [
    step(number),
    scheduled([[1, start, 1]]),
    finished([[1, "x"]]),
  ];
  const pause = [step(3), scheduled([])];
  const { segments } = model(
    started(),
    firstStep,
    decode(2, 5),
    pause,
    finished(),
    decode(4, 6),
  ).request(1);
  assert.deepEqual(
    segments.slice(1).map(({ from, to }) => [from, to]),
    [
      [2, 2],
      [4, 4],
    ],
  );
});

test("a waiting request would hit whole blocks, also part of an edge, but never all of its tokens", () => {
  const found = (prompt, settings) => {
    const whole = model(started(settings), firstStep, secondStep, arrived(3, prompt));
    return whole.frame(3).path(3).blocks;
  };
  assert.deepEqual(found("abcdefg"), [0, 1, 2]);
  assert.deepEqual(found("abcdef"), [0, 1], "one token at least is left to compute");
  assert.deepEqual(found("abcx5"), [0]);
  assert.deepEqual(found("xbcd5"), []);
  assert.deepEqual(found("abcdefg", { prefix_cache: "off" }), []);
  const split = [make.split(1, 1, 2), arrived(3, "abxxx")];
  const cut = model(started(), firstStep, secondStep, split).frame(3).path(3);
  assert.deepEqual([cut.nodes, cut.blocks], [[2], [0]]);
  // Below a partly matched edge nothing can match.
  const below = [make.split(1, 2, 2), arrived(3, "abefefg")];
  assert.deepEqual(model(started(), firstStep, secondStep, below).frame(3).path(3).blocks, [0]);
});

test("a run of decodes is one segment", () => {
  const decode = (number) => [step(number), scheduled([[1, 3 + number, 1]]), finished([[1, "x"]])];
  const { segments } = model(started(), firstStep, decode(2), decode(3), decode(4)).request(1);
  assert.deepEqual(
    segments.map(({ kind, from, to }) => [kind, from, to]),
    [
      ["prefill", 1, 1],
      ["decode", 2, 4],
    ],
  );
});

/** r1 holds blocks 0 to 2, r2 shares 0 and 1 and holds 3; in step 3 r1 takes r2's block. */
const thirdStep = [
  step(3),
  make.preempted(2, 1),
  allocated(1, 3),
  scheduled([[1, 6, 1]], { blocked: [2, "after_preemption", 0, 0, 0] }),
  finished([[1, "h"]]),
];
const full = { num_blocks: 4 };

test("preempted and resumed: segments, fates, blocks that change owners", () => {
  const back = [step(4), make.ended(1, "stop"), admitted(2, 1, [0, 1], true), allocated(2, 3)];
  const rest = [scheduled([[2, 4, 2]]), finished([[2, "z"]])];
  const whole = model(started(full), firstStep, secondStep, thirdStep, back, rest);
  const { segments, preemptions } = whole.request(2);
  assert.deepEqual(
    segments
      .slice(1, 3)
      .map(({ kind, from, to, by, resume, recomputed }) => [
        kind,
        from,
        to,
        by,
        resume,
        recomputed,
      ]),
    [
      ["preempted", 3, 3, 1, 4, undefined],
      ["prefill", 4, 4, undefined, undefined, 1],
    ],
  );
  assert.deepEqual(preemptions, [{ step: 3, computed: 5, resume: 4 }]);

  const frame = whole.frame(3);
  assert.deepEqual(frame.table(2), {
    blocks: [0, 1, 3],
    lost: true,
    fates: [
      { fate: "others", to: null },
      { fate: "others", to: null },
      { fate: "taken", to: 1 },
    ],
  });
  assert.deepEqual(frame.blocks[3], {
    id: 3,
    kind: "unshared",
    owners: [1],
    refs: 1,
    node: 0,
    filled: 1,
    slots: 2,
    isCut: false,
    group: 0,
    mark: "handed",
    from: 2,
    to: 1,
  });
  assert.equal(frame.phase(2).kind, "preempted");
  assert.deepEqual(frame.path(2), { nodes: [1], blocks: [0, 1], tokens: 4, holds: false });
  assert.equal(openingStep(whole), 3);
  assert.equal(openingRequest(whole), 2);
});

test("decisions are in order, with the remaining budget, and one of them is hot", () => {
  const { decisions } = model(started(full), firstStep, secondStep, thirdStep).frame(3);
  assert.deepEqual(
    decisions.map(({ kind, request, left, hot }) => [kind, request, left, hot]),
    [
      ["preempted", 2, undefined, true],
      ["decode", 1, 7, false],
      ["waits", 2, undefined, false],
    ],
  );
  assertNames(plain(decisions[0].spans), "r1", 1, "none", "r2", 5, 4);
  assertNames(plain(decisions[1].spans), "r2", 3);
});

test("the choice of a victim is explained only if its rule is known and was followed", () => {
  const decided = (classes) => {
    const events = [started(full, classes), firstStep, secondStep, thirdStep];
    return plain(model(events).frame(3).decisions[0].spans);
  };
  const bare = decided({ policy: "MyOwn" });
  assert.ok(!names(bare, "r2"), bare);
  for (const policy of ["Fcfs", "Priority"]) assertNames(decided({ policy }), "r2");
  assert.notEqual(decided({ policy: "Fcfs" }), decided({ policy: "Priority" }));
});

test("the tokens panel: cached prompt, output with probabilities, the next token", () => {
  const whole = model(started(full), firstStep, secondStep, thirdStep);
  const panel = whole.frame(2).tokensOf(1);
  assert.deepEqual(
    panel.output.map(({ text, probability, step: at }) => [text, probability, at]),
    [
      ["f", 0.5, 1],
      ["g", 1, 2],
    ],
  );
  assert.equal(panel.ttft, 300);
  assert.deepEqual(panel.next, { step: 3, after: null });
  assert.deepEqual(whole.frame(1).tokensOf(1).next, { step: 2, after: 300 });
  const cached = whole
    .frame(2)
    .tokensOf(2)
    .prompt.map((piece) => piece.cached);
  assert.deepEqual(cached, [true, true, true, true, false]);
  assert.equal(whole.frame(3).tokensOf(2).next, null);
});

test("forced tokens have no probability", () => {
  const t = { end: 1, logprobs: [[-1, 0, 0]] };
  const forced = [step(2), scheduled([[1, 5, 1]]), finished([[1, "xyz", 0, 2]], t)];
  const { output } = model(started(), firstStep, forced).frame(2).tokensOf(1);
  assert.deepEqual(
    output.slice(1).map((token) => token.forced),
    [false, true, true],
  );
  assert.equal(output[2].probability, null);
});

test("names are labels, numbered if repeated, cut if long, cleaned", () => {
  const labels = ["Ada", "", "Ada", "  Bo\n\u202eevil ", "a".repeat(40), "Ada 2"];
  const named = model(
    started(),
    labels.map((label, at) => arrived(at + 1, "x", { label })),
  );
  const names = named.requests.map(({ name }) => name);
  assert.deepEqual(names, ["Ada", "r2", "Ada 2", "Bo evil", `${"a".repeat(15)}…`, "Ada 2 2"]);
});

test("the reasons of a wait, step by step", () => {
  const wait = (number, blocked) => [
    step(number),
    scheduled([[1, 3 + number, 1]], { blocked }),
    finished([[1, "x"]]),
  ];
  const queue = [arrived(2, "x"), arrived(3, "y", { label: "Cy" })];
  const blocked = [
    wait(2, [2, "batch_full", 1, 1, 0]),
    wait(3, [2, "no_free_blocks", 1, 2, 1]),
    wait(4, [2, "after_preemption", 1, 0, 0]),
    wait(5, [3, "no_free_blocks", 1, 2, 1]),
  ];
  const whole = model(started(), firstStep, queue, blocked);
  const reasons = (id) =>
    [2, 3, 4, 5].map((step) => [
      waitWords(whole, step, id),
      [step, step],
      whole.waitAt(step, id).head,
    ]);
  const { batch_full, no_free_blocks, after_preemption } = reasonWords;
  const [first, second, third, [behindCy, ...cy]] = reasons(2);
  assert.deepEqual(
    [first, second, third, cy],
    [
      [batch_full, [2, 2], 2],
      [no_free_blocks, [3, 3], 2],
      [after_preemption, [4, 4], 2],
      [[5, 5], 3],
    ],
  );
  assertNames(behindCy, "Cy");
  const [[behindR2, ...r2], ...rest] = reasons(3);
  assertNames(behindR2, "r2");
  assert.deepEqual(r2, [[2, 2], 2]);
  assert.deepEqual(
    rest.map(([, steps, head]) => [steps, head]),
    [
      [[3, 3], 2],
      [[4, 4], 3],
      [[5, 5], 3],
    ],
  );
});

test("a window begins with a keyframe: earlier steps are unknown, later ones complete", () => {
  const events = [started(full), firstStep, secondStep].flat();
  const folded = new State();
  for (const event of events) folded.apply(event);
  const window = model(keyframe(folded), thirdStep);
  assert.deepEqual([window.firstStep, window.lastStep], [2, 3]);
  assert.equal(window.frame(2).status, "joined");
  assert.equal(window.request(1).arrived, null);
  assert.deepEqual(window.request(1).tokenSteps, [0, 0, 3]);
  assert.deepEqual(
    window
      .frame(3)
      .table(2)
      .fates.map(({ fate }) => fate),
    ["others", "others", "taken"],
  );
  assert.equal(window.event(16).type, "preempted");
  const whole = model(events, thirdStep);
  assert.deepEqual(core(window.frame(3).state), core(whole.frame(3).state));
});

test("steps are found in any order, also far from a kept copy", () => {
  const decode = (number) => [step(number), scheduled([[1, 3 + number, 1]]), finished([[1, "x"]])];
  const many = Array.from({ length: 1500 }, (_, at) => decode(at + 2));
  const long = model(started(), firstStep, many);
  const fresh = new State();
  const tokens = new Map();
  for (const event of long.events.range(0, long.events.length)) {
    fresh.apply(event);
    tokens.set(fresh.step, core(fresh).requests[0]?.tokens.length);
  }
  for (const at of [1501, 3, 700, 701, 699, 1, 1500, 334, 335]) {
    assert.equal(core(long.frame(at).state).requests[0].tokens.length, tokens.get(at));
  }
});

test("a contradiction in a log is an error with its place", () => {
  const refuses = (events, ...facts) =>
    assert.throws(
      () => model(events),
      (error) => error instanceof LogError && facts.every((fact) => names(error.message, fact)),
    );
  refuses([started(), step(1), step(3)], 2, 3, 1);
  refuses([started(), started()], 1, "run_started");
  refuses([started(), step(1), scheduled([[9, 0, 1]])], 2, 9);
  refuses([started(), step(1), admitted(9)], 2, 9);
});

/** Step 2 checks the drafts "abgh" behind "f"; `gains` is what came of it. */
const draftStep = (gains, drafts = "abgh") => [
  step(2),
  scheduled([[1, 5, 1 + drafts.length, [...drafts].map((one) => one.codePointAt(0))]]),
  finished(gains),
];
const checkedIn = (...events) =>
  model(started(), firstStep, ...events)
    .frame(2)
    .tokensOf(1);
const fates = ({ drafts }) => drafts.map(({ text, fate }) => [text, fate]);

test("drafts up to the first wrong one are accepted, and the model's own token replaces it", () => {
  const { checked, guesses } = checkedIn(draftStep([[1, "abz", 2]]), [step(3), finished([])]);
  assert.ok(guesses);
  assert.deepEqual(fates(checked), [
    ["a", "kept"],
    ["b", "kept"],
    [null, "refused"],
    [null, "unused"],
  ]);
  assert.deepEqual([checked.kept, checked.gained, checked.own], [2, 3, "z"]);
  assert.equal(checked.drafts[2].token, "g".codePointAt(0));
});

test("a draft has the text that the log has for its token", () => {
  const elsewhere = [arrived(2, "ghi"), draftStep([[1, "z"]])];
  assert.deepEqual(
    checkedIn(elsewhere).checked.drafts.map(({ text }) => text),
    ["a", "b", "g", "h"],
  );
});

test("if all drafts are accepted, the model's own token is one more", () => {
  const { checked } = checkedIn(draftStep([[1, "abghz", 4]]));
  assert.ok(checked.drafts.every(({ fate }) => fate === "kept"));
  assert.deepEqual([checked.kept, checked.gained, checked.own], [4, 5, "z"]);
});

test("if an accepted draft ends the output or calls a tool, none is rejected and there is no own token", () => {
  for (const gain of [
    [1, "ab", 2],
    [1, "abxy", 2, 2],
  ]) {
    const { checked } = checkedIn(draftStep([gain]));
    assert.deepEqual(
      checked.drafts.map(({ fate }) => fate),
      ["kept", "kept", "unused", "unused"],
    );
    assert.deepEqual([checked.gained, checked.own], [2, null]);
  }
});

test("drafts of an unfinished step are open; a step without drafts has none", () => {
  const { checked } = checkedIn(draftStep([]));
  assert.ok(checked.drafts.every(({ fate }) => fate === "open"));
  const before = model(started(), firstStep, draftStep([])).frame(1).tokensOf(1);
  assert.equal(before.checked, null);
});
