/** Checks that an event has a known type and the fields of that type. */

export const SCHEMA = 2;
export const KEYFRAME_SCHEMA = 3;

/** An error in a log: its `line` in the file (from 1), or the `seq` of a parsed event. */
export class LogError extends Error {
  reason: string;
  line: number | undefined;
  seq: number | undefined;

  constructor(reason: string, { line, seq }: { line?: number; seq?: number } = {}) {
    const at = line !== undefined ? `line ${line}: ` : seq !== undefined ? `event ${seq}: ` : "";
    super(at + reason);
    this.name = "LogError";
    this.reason = reason;
    this.line = line;
    this.seq = seq;
  }
}

/** What each kind of field is called, and whether a value is one. */
const KINDS: Record<string, [string, (value: unknown) => boolean]> = {
  i: ["a whole number", Number.isInteger],
  s: ["a string", (value) => typeof value === "string"],
  b: ["true or false", (value) => typeof value === "boolean"],
  o: ["an object", (value) => typeof value === "object" && value !== null && !Array.isArray(value)],
  a: ["a list", Array.isArray],
  I: ["a list of whole numbers", isListOfIntegers],
  S: ["a list of strings", isListOfStrings],
  L: [
    "a list of lists of whole numbers",
    (value) => Array.isArray(value) && value.every(isListOfIntegers),
  ],
};

/**
 * How to check a vocabulary: a function that says why a value is not one of its events, or null if it is. It gets the
 * fields of each type of event; `?` marks a field that is omitted if it has its default.
 * i: whole number, s: string, b: true or false, o: object, a: list, I: list of whole numbers,
 * S: list of strings, L: list of lists of whole numbers.
 */
export function checkerOf(vocabulary: Record<string, string>): (event: any) => string | null {
  const types = Object.fromEntries(
    Object.entries(vocabulary).map(([type, fields]) => [
      type,
      fields.split(" ").map((field) => {
        const [name, kind] = field.split(":");
        const [words, fits] = KINDS[kind[0]];
        return { name, words, fits, optional: kind.endsWith("?") };
      }),
    ]),
  );
  return (event) => {
    if (!KINDS.o[1](event)) return "an event must be an object with a type";
    if (!Object.hasOwn(types, event.type))
      return `unknown event type ${JSON.stringify(event.type)}`;
    for (const { name, words, fits, optional } of types[event.type]) {
      const value = event[name];
      if (value === undefined || value === null ? optional : fits(value)) continue;
      return `${event.type} needs ${name}, ${words}`;
    }
    return null;
  };
}

const problemOf = checkerOf({
  run_started: "schema:i settings:o classes:o model:o tokenizer:o clock:s source:o? t:o?",
  request_arrived: "request:i prompt:I texts:S label:s max_tokens:i n:i priority:i sampling:o t:o?",
  step_started: "step:i",
  admitted: "request:i node:i blocks:I resumed:b key:a",
  blocks_allocated: "request:i blocks:I",
  block_copied: "request:i index:i source:i block:i",
  preempted: "request:i needed_by:i refunded:i",
  radix_evicted: "node:i needed_by:i reason:s",
  step_scheduled: "rows:a skipped:a blocked:a?",
  forked: "request:i parent:i sample:i",
  step_finished: "tokens:a step:i? wasted:I? expert_loads:L? draft_error:s? t:o?",
  blocks_trimmed: "request:i keep:i",
  radix_split: "node:i at:i upper:i",
  radix_joined: "request:i node:i blocks:I",
  radix_inserted: "request:i node:i parent:i blocks:I",
  radix_extended: "request:i node:i blocks:I",
  blocks_stored: "request:i parent:i nodes:I blocks:I",
  block_evicted: "node:i block:i needed_by:i reason:s",
  block_withdrawn: "request:i node:i block:i",
  window_pages_evicted: "blocks:I needed_by:i",
  request_finished: "request:i reason:s message:s? matched:s?",
  prefix_held: "hold:i node:i blocks:I label:s",
  prefix_released: "hold:i reason:s",
  prefix_adopted: "parent:i nodes:I blocks:I tokens:I texts:S source:s window_pages:i? t:o?",
  engine_paused: "t:o?",
  engine_resumed: "t:o?",
  events_missing: "count:i message:s t:o?",
  blocks_reported: "parent:i nodes:I blocks:I tokens:I hashes:S medium:s",
  step_reported: "prefills:i prefill_tokens:i decodes:i waiting:i waiting_tokens:i",
  keyframe: "seq:i state:o",
});

// Loops, because a log of a million events has ten million numbers and texts, and `every` calls a function for each.

function isListOfIntegers(value: unknown) {
  if (!Array.isArray(value)) return false;
  for (const item of value) if (!Number.isInteger(item)) return false;
  return true;
}

function isListOfStrings(value: unknown) {
  if (!Array.isArray(value)) return false;
  for (const item of value) if (typeof item !== "string") return false;
  return true;
}

/** Why a value cannot be the next event of a log, or null if it can. */
export function problemWith(event: any, first: boolean): string | null {
  return (first ? problemOfFirst(event) : null) ?? problemOf(event);
}

function problemOfFirst(event: any) {
  if (event?.type !== "run_started" && event?.type !== "keyframe") {
    return "a log begins with run_started or keyframe: is this an event log?";
  }
  const [schema, reads] =
    event.type === "keyframe" ? [event.state?.schema, KEYFRAME_SCHEMA] : [event.schema, SCHEMA];
  if (schema === reads) return null;
  return (
    `this log has schema ${JSON.stringify(schema)}, and this viewer reads ${reads}: ` +
    "open it with the Underglass that wrote it"
  );
}
