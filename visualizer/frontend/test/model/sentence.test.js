import assert from "node:assert/strict";
import test from "node:test";
import { Model, plain, sentence } from "../../src/model/index.js";
import * as make from "./events.js";

const { admitted, allocated, arrived, finished, inserted, scheduled, started, step } = make;

const model = (...events) => new Model(events.flat(Infinity));
const say = (number, ...events) => plain(sentence(model(...events), number));

/** r1 computes "abcde" in blocks 0, 1, 2; 0 and 1 are node 1. */
const one = (options) => [
  arrived(1, "abcde", options),
  step(1),
  admitted(1),
  allocated(1, 0, 1, 2),
  scheduled([[1, 0, 5]]),
  finished([[1, "f"]]),
  inserted(1, 1, 0, 0, 1),
];
/** r2 hits four tokens of it and takes block 3. */
const two = (options) => [
  arrived(2, "abcdx", options),
  step(2),
  admitted(2, 1, [0, 1]),
  allocated(2, 3),
  scheduled([
    [1, 5, 1],
    [2, 4, 1],
  ]),
  finished([
    [1, "g"],
    [2, "y"],
  ]),
  make.extended(1, 1, 2),
];
/** In step 3 r1 needs a block, and there are only four. */
const three = [
  step(3),
  make.preempted(2, 1),
  allocated(1, 3),
  scheduled([[1, 6, 1]], { blocked: [2, "after_preemption", 0, 0, 0] }),
  finished([[1, "h"]]),
];
const small = started({ num_blocks: 4 });
/** A step of one decode in which `blocked` is the head of the queue. */
const wait = (number, blocked, alone = false) => [
  step(number),
  scheduled(alone ? [] : [[1, 3 + number, 1]], { blocked }),
  finished(alone ? [] : [[1, "x"]]),
];

/** After step 2 r1 is gone and left node 1, blocks 0 and 1, in the cache. */
const gone = [wait(2), make.ended(1)];

test("nothing special", () => {
  assert.equal(
    say(1, started(), one()),
    "Step 1: 5 tokens of r1's prompt, 5 of 8 tokens. r1's prompt is complete, so it has its first token.",
  );
  assert.equal(
    say(2, started(), one(), wait(2)),
    "Step 2: 1 decode, 1 of 8 tokens. r1 gains one token; nobody waits.",
  );
});

test("a hit; a label is the name", () => {
  const spans = sentence(model(started(), one(), two({ label: "Ada" })), 2);
  assert.equal(
    plain(spans),
    "Step 2: 1 decode and 1 token of Ada's prompt, 2 of 8 tokens. " +
      "4 of Ada's 5 prompt tokens were in the cache.",
  );
  assert.deepEqual(
    spans.filter((span) => span.request),
    [
      { text: "Ada", request: 2, bold: true },
      { text: "Ada", request: 2 },
    ],
  );
  assert.equal(spans[0].bold, true);
  assert.equal(spans.at(-1).bold, undefined);
});

test("a wait that ends with a hit", () => {
  const arrival = arrived(2, "abcdx");
  const waits = [2, 3].map((number) => wait(number, [2, "batch_full", 0, 1, 0]));
  const hit = two().slice(1).with(0, step(4));
  assert.match(
    say(4, started(), one(), arrival, waits, hit),
    /r2 waited two steps for a place; 4 of its 5 prompt tokens were in the cache\./,
  );
});

test("a wait for more than one reason names none", () => {
  const waits = [wait(2, [2, "batch_full", 0, 1, 0]), wait(3, [2, "token_budget", 0, 1, 0])];
  const text = say(
    4,
    started(),
    one(),
    arrived(2, "abcdx"),
    waits,
    two().slice(1).with(0, step(4)),
  );
  assert.match(text, /r2 waited two steps; 4 of/);
});

test("a preemption: who lacks what, who gives way, what became of the blocks", () => {
  assert.equal(
    say(3, small, one(), two(), three),
    "Step 3: 1 decode, 1 of 8 tokens. r1 needs a block and none is left, so r2 is preempted: " +
      "of its 3 blocks others keep 2, r1 takes 1.",
  );
});

test("a preemption that many live on: they are counted, not named", () => {
  const others = [1, 2, 3, 4];
  const crowd = [
    ...others.map((id) => arrived(id, "ab")),
    arrived(5, "abcdefgh"),
    step(1),
    ...others.flatMap((id) => [admitted(id), allocated(id, id - 1)]),
    admitted(5),
    allocated(5, 4, 5, 6, 7, 8),
    scheduled([...others.map((id) => [id, 0, 2]), [5, 0, 8]]),
    finished([...others, 5].map((id) => [id, "x"])),
    step(2),
    make.preempted(5, 1),
    ...others.map((id) => allocated(id, 3 + id)),
    scheduled(
      others.map((id) => [id, 2, 1]),
      { blocked: [5, "after_preemption", 0, 0, 0] },
    ),
    finished(others.map((id) => [id, "y"])),
  ];
  assert.equal(
    say(2, started({ num_blocks: 9, max_batch_size: 5, token_budget: 16 }), crowd),
    "Step 2: 4 decodes, 4 of 16 tokens. r1 needs a block and none is left, so r5 is preempted: " +
      "of its 5 blocks four requests take 4, 1 is free.",
  );
});

test("those who wait behind a preemption", () => {
  const queue = [arrived(3, "x"), arrived(4, "y"), arrived(5, "z")];
  assert.match(
    say(3, small, one(), two(), queue, three),
    /r3, r4 and r5 wait: a step that preempts admits nobody\.$/,
  );
});

test("preempting oneself", () => {
  const self = [step(3), make.preempted(1, 1), scheduled([[2, 5, 1]]), finished([[2, "z"]])];
  assert.equal(
    say(3, small, one(), two(), self),
    "Step 3: 1 decode, 1 of 8 tokens. r1 needs a block and none is left, so it is preempted itself: " +
      "of its 3 blocks others keep 2, the cache keeps 1.",
  );
});

test("a preemption although something could be had", () => {
  const long = [
    arrived(2, "0123456789abcd"),
    step(3),
    admitted(2),
    allocated(2, 2, 3, 4, 5),
    scheduled([[2, 0, 8]]),
    finished(),
  ];
  const self = [
    step(4),
    make.preempted(2, 2),
    scheduled([], { blocked: [2, "after_preemption", 0, 0, 0] }),
  ];
  assert.match(
    say(4, started(), one(), gone, long, self),
    /r2 needs 3 blocks and only 2 can be evicted, so it is preempted itself: of its 4 blocks all are free\./,
  );
});

test("a resume tells what is computed again", () => {
  const back = [
    step(4),
    admitted(2, 1, [0, 1], true),
    allocated(2, 4),
    scheduled([
      [1, 7, 1],
      [2, 4, 2],
    ]),
    finished([
      [1, "i"],
      [2, "z"],
    ]),
  ];
  assert.equal(
    say(4, started({ num_blocks: 5 }), one(), two(), three, back),
    "Step 4: 1 decode and 2 tokens for r2 to catch up, 3 of 8 tokens. " +
      "r2 resumes after one step: 4 of its 6 tokens are in the cache, 1 has to be computed again.",
  );
});

test("an eviction: need, free, and how long it was idle", () => {
  const big = [
    arrived(2, "0123456789"),
    step(3),
    admitted(2),
    make.evicted(1, 2),
    allocated(2, 0, 1, 2, 3, 4),
  ];
  const rows = scheduled([[2, 0, 10]]);
  assert.match(
    say(3, started({ num_blocks: 5, token_budget: 16 }), one(), gone, big, rows),
    /r2 needs 5 blocks and 3 are free, so a leaf of 2 cached blocks, unused since step 2, is evicted\./,
  );
});

test("a cleared cache and an abort, between two steps", () => {
  assert.equal(
    say(3, started(), one(), gone, make.evicted(1, -1, "cleared")),
    "Step 3 has not begun. The cache is cleared of the 2 blocks nobody used.",
  );
  assert.equal(
    say(2, started(), one(), arrived(2, "x"), arrived(3, "y"), make.ended(2, "abort")),
    "Step 2 has not begun. r2 was aborted. r3 waits.",
  );
});

test("a fork, and the copies on write after it", () => {
  const fork = [
    arrived(1, "abc", { n: 3 }),
    step(1),
    admitted(1),
    allocated(1, 0, 1),
    scheduled([[1, 0, 3]]),
    make.forked(2, 1, 1),
    make.forked(3, 1, 2),
    finished([
      [1, "x"],
      [2, "y"],
      [3, "z"],
    ]),
  ];
  assert.equal(
    say(1, started(), fork),
    "Step 1: 3 tokens of r1's prompt, 3 of 8 tokens. r1's prompt is complete; " +
      "r2 and r3 are more samples of it and share its 2 blocks.",
  );
  const rows = scheduled([
    [1, 3, 1],
    [2, 3, 1],
    [3, 3, 1],
  ]);
  assert.match(
    say(2, started(), fork, step(2), make.copied(1, 1, 1, 2), make.copied(2, 1, 1, 3), rows),
    /r1 and r2 write into blocks that others share, so those are copied: 1 to 2 and 1 to 3\.$/,
  );
  assert.match(
    say(2, started(), fork, step(2), make.copied(1, 1, 1, 2), scheduled([[1, 3, 1]])),
    /r1 writes into a block it shares with r2 and r3, so block 1 is copied to 2\.$/,
  );
});

test("a prompt that the budget cuts, and a running request that gets nothing", () => {
  const cut = [step(1), admitted(1), allocated(1, 0), scheduled([[1, 0, 2]]), finished()];
  assert.equal(
    say(1, started({ token_budget: 2 }), arrived(1, "abcde"), cut),
    "Step 1: 2 tokens of r1's prompt, 2 of 2 tokens. " +
      "The budget cuts r1's prompt: 3 of 5 tokens are left for later.",
  );
  const skipped = scheduled([[1, 5, 1]], { skipped: [[2, "token_budget"]] });
  assert.match(
    say(3, started(), one(), two(), step(3), skipped),
    /r2 runs but gets nothing: the budget is spent\./,
  );
});

test("drafts", () => {
  const drafts = (accepted) => [
    step(2),
    allocated(1, 3),
    scheduled([[1, 5, 3, [7, 8]]]),
    finished([[1, "ghi".slice(0, accepted + 1), accepted]]),
  ];
  assert.equal(
    say(2, started(), one(), drafts(1)),
    "Step 2: 1 decode and 2 drafts to check, 3 of 8 tokens. Of 2 drafts 1 is accepted.",
  );
  assert.match(say(2, started(), one(), drafts(0)), /Of 2 drafts none is accepted\./);
});

test("forced tokens", () => {
  const forced = [step(2), scheduled([[1, 5, 1]]), finished([[1, "gh", 0, 1]])];
  assert.match(say(2, started(), one(), forced), /1 token of r1 comes from its tool, not from the/);
});

test("twins that computed the same", () => {
  const twin = [arrived(2, "abcde"), step(2), admitted(2), allocated(2, 3, 4, 5)];
  const rows = [scheduled([[2, 0, 5]]), finished([[2, "f"]]), make.joined(2, 1, 0, 1)];
  assert.match(
    say(2, started(), one(), twin, rows),
    /r2 computed 2 blocks that the cache has by now, so it uses those instead\.$/,
  );
  const single = [scheduled([[2, 0, 5]]), finished([[2, "f"]]), make.joined(2, 1, 0)];
  assert.match(
    say(2, started(), one(), twin, single),
    /r2 computed 1 block that the cache has by now, so it uses that one instead\.$/,
  );
  // A fork's sibling joins the very blocks it shares already: that is no news.
  const fork = [
    arrived(1, "abcd", { n: 2 }),
    step(1),
    admitted(1),
    allocated(1, 0, 1),
    scheduled([[1, 0, 4]]),
    make.forked(2, 1, 1),
    finished([
      [1, "x"],
      [2, "y"],
    ]),
    inserted(1, 1, 0, 0, 1),
    make.joined(2, 1, 0, 1),
  ];
  assert.doesNotMatch(say(1, started(), fork), /computed/);
});

test("endings", () => {
  const end = (...events) => say(2, started(), one({ max_tokens: 2 }), two(), ...events);
  assert.match(end(make.ended(1)), /r1 reaches its limit of 2 tokens\.$/);
  assert.match(end(make.ended(1, "stop")), /r1 stops\.$/);
  assert.match(end(make.ended(1, "stop"), make.ended(2)), /r1 stops and r2 reaches its limit of 4/);
  assert.match(end(make.ended(1), make.ended(2)), /r1 and r2 reach their limits\.$/);
});

test("a failed forward pass", () => {
  const message = "RuntimeError: the device is on fire and cannot be reached by anybody at all";
  const failed = [step(2), scheduled([[1, 5, 1]]), make.ended(1, "error", message), finished()];
  assert.equal(
    say(2, started(), one(), failed),
    "Step 2: 1 decode, 1 of 8 tokens. The forward pass fails (RuntimeError: the device is on fire " +
      "and cannot be reached b…), and r1 ends with it.",
  );
});

test("a step that was given up while it was planned", () => {
  const given = say(2, started(), one(), step(2), finished(), wait(3, [2, "policy", 0, 0, 0]));
  assert.equal(given, "Step 2: planning it failed, and nobody computes.");
});

test("why the head of the queue waits, with what it needs and what there is", () => {
  const why = (blocked, settings) => {
    const queue = [2, 3, 4, 5, 6].slice(0, blocked[2] + 1).map((id) => arrived(id, "abcdx"));
    return say(2, started(settings), one(), queue, wait(2, blocked)).replace(/^.*?tokens?\. /, "");
  };
  assert.equal(why([2, "batch_full", 0, 1, 0]), "r2 waits: all three places are taken.");
  const three_ = "r2 waits: all three places are taken; r3, r4 and 2 more wait behind it.";
  assert.equal(why([2, "batch_full", 4, 1, 0]), three_);
  const place = { max_batch_size: 1 };
  assert.equal(why([2, "batch_full", 0, 1, 0], place), "r2 waits: the one place is taken.");
  assert.match(why([2, "batch_full", 0, 3, 1]), /it needs 3 places and only 1 is empty\./);
  assert.match(
    why([2, "token_budget", 1, 1, 0]),
    /the budget of 8 tokens is spent; r3 waits behind/,
  );
  assert.match(
    why([2, "token_budget", 0, 8, 7]),
    /needs 8 tokens in one step, and 7 of 8 are left\./,
  );
  assert.match(why([2, "no_free_blocks", 0, 4, 3]), /it needs 4 blocks and 3 are free\./);
  assert.match(why([2, "reserved_blocks", 0, 4, 1]), /need 4 blocks, and only 1 is not promised/);
  assert.match(why([2, "reserved_blocks", 0, 4, -2]), /need 4 blocks, and all are promised/);
  assert.match(why([2, "policy", 0, 0, 0]), /the policy put it off\./);
});

test("who is put off blocks nobody, and the head of the queue waits for its own reason", () => {
  const put = (ids, blocked) => {
    const skipped = ids.map((id) => [id, "policy"]);
    const queue = [2, 3, 4, 5].map((id) => arrived(id, "abcdx"));
    const step_ = [step(2), scheduled([[1, 5, 1]], { skipped, blocked }), finished([[1, "g"]])];
    return say(2, started(), one(), queue, step_).replace(/^.*?tokens?\. /, "");
  };
  assert.equal(put([2, 3, 4, 5]), "r2, r3 and 2 more wait: the policy put them off.");
  assert.equal(
    put([2], [3, "batch_full", 2, 1, 0]),
    "r2 waits: the policy put it off. r3 waits: all three places are taken; r4 and r5 wait behind it.",
  );
});

test("cached blocks: what can be evicted, and what is the request's own", () => {
  // r1 is gone: blocks 0 and 1 are cached, four are free.
  const why = (need, have) => {
    const blocked = [2, "no_free_blocks", 0, need, have];
    return say(3, started(), one(), gone, arrived(2, "abcdx"), wait(3, blocked, true));
  };
  assert.match(why(7, 6), /it needs 7 blocks, 4 are free and 2 can be evicted\./);
  assert.match(
    why(5, 4),
    /it needs 5 blocks, 4 are free, and the 2 cached ones are its own prefix\./,
  );
  assert.match(
    why(6, 5),
    /it needs 6 blocks, 4 are free and 1 can be evicted; the cached one is its own prefix\./,
  );
});

test("a static batch: who waits, and how many places are empty", () => {
  const settings = { batching: "static", max_batch_size: 4, token_budget: 64 };
  assert.equal(
    say(2, started(settings), one(), arrived(5, "x"), wait(2, [5, "static_batch", 0, 0, 0])),
    "Step 2: 1 decode, 1 of 64 tokens. r5 waits: the batch is static. Three of four places are empty.",
  );
});

test("it stays within two lines, whatever happens", () => {
  const label = "a very long name indeed";
  const arrivals = Array.from({ length: 40 }, (_, id) => arrived(id + 3, "xy", { label }));
  const text = say(3, small, one({ label }), two({ label }), arrivals, three);
  assert.ok(text.length <= 250, `${text.length}: ${text}`);
  assert.match(text, /is preempted/);
});
