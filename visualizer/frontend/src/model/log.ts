/** Checks that an event has a known type and the fields of that type. */

import { KEYFRAME_SCHEMA, SCHEMA, VOCABULARY } from "./vocabulary.ts";

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

type Fits = (value: any) => boolean;

/** The types without parts: what a message calls them, and whether a value has them. */
const PLAIN: Record<string, [string, Fits]> = {
  i: ["a whole number", Number.isInteger],
  n: ["a number", (value) => typeof value === "number"],
  s: ["a string", (value) => typeof value === "string"],
  b: ["true or false", (value) => typeof value === "boolean"],
  a: ["anything", () => true],
  "{": [
    "an object",
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  ],
  "[": ["a list", Array.isArray],
  "*": ["an event", (value) => problemOf(value) === null],
};

/**
 * How to check a vocabulary: a function that says why a value is not one of its events, or null if it is. It gets the
 * fields of each kind of event and of each struct, as `NAME:TYPE`. `NAME?` may be omitted, and `#` marks a struct whose
 * fields are a list. A type is a letter of `PLAIN`, or
 *
 *   [T    a list of T         {T   an object whose values are T   ?T    T or null
 *   (T,T  a list of these     <S   the struct or event S          'x|y  one of these strings
 */
export function checkerOf(vocabulary: Record<string, string>): (event: any) => string | null {
  const structs: Map<string, Fits> = new Map();
  const fields: Map<string, { name: string; code: string; fits: Fits }[]> = new Map();
  const fitsOf = (code: string): Fits => {
    const rest = code.slice(1);
    if (code[0] === "<") return (value) => structs.get(rest)?.(value) === true;
    if (code[0] === "(") {
      const parts = rest.split(",").map(fitsOf);
      return (value) =>
        Array.isArray(value) &&
        value.length === parts.length &&
        parts.every((fits, i) => fits(value[i]));
    }
    if (code[0] === "'") {
      const values = rest.split("|");
      return (value) => values.includes(value);
    }
    const [, plain] = PLAIN[code[0]] ?? [];
    if (plain && !rest) return plain;
    const part = fitsOf(rest);
    if (code[0] === "?") return (value) => value === null || part(value);
    if (code[0] === "[") return (value) => Array.isArray(value) && all(value, part);
    return (value) => PLAIN["{"][1](value) && all(Object.values(value), part);
  };
  for (const [struct, text] of Object.entries(vocabulary)) {
    const own = [...text.matchAll(/(\w+)(\??):(\S+)/g)].map(([, name, optional, code]) => {
      const fits = fitsOf(code);
      return { name, code, fits: optional ? (one: any) => one === undefined || fits(one) : fits };
    });
    fields.set(struct, own);
    const isRow = text[0] === "#";
    structs.set(struct, (value) => {
      if (!PLAIN[isRow ? "[" : "{"][1](value)) return false;
      for (let i = 0; i < own.length; i++)
        if (!own[i].fits(value[isRow ? i : own[i].name])) return false;
      return value.type === undefined || value.type === struct;
    });
  }
  return (event) => {
    if (!PLAIN["{"][1](event)) return "an event is an object with a type";
    const { type } = event;
    const own = /^[a-z]/.test(type) && fields.get(type); // a struct has a capital letter
    if (!own) return `unknown event type ${JSON.stringify(type)}`;
    const wrong = own.find(({ name, fits }) => !fits(event[name]));
    return wrong ? `${type} needs ${wrong.name}, ${wordsOf(wrong.code)}` : null;
  };
}

function wordsOf(code: string): string {
  const rest = code.slice(1);
  if (code[0] === "?") return `${wordsOf(rest)} or null`;
  if (code[0] === "<") return `a ${rest}`;
  if (code[0] === "'") return `one of ${rest.replaceAll("|", ", ")}`;
  const [words] = PLAIN[code[0] === "(" ? "[" : code[0]];
  return code[0] === "[" ? `${words}, each ${wordsOf(rest)}` : words;
}

// A loop, because a log of a million events has ten million numbers and texts.
function all(values: any[], fits: Fits) {
  for (const value of values) if (!fits(value)) return false;
  return true;
}

const problemOf = checkerOf(VOCABULARY);

/** Why a value cannot be the next event of a log, or null if it can. */
export function problemWith(event: any, first: boolean): string | null {
  return (first ? problemOfFirst(event) : null) ?? problemOf(event);
}

function problemOfFirst(event: any) {
  if (event?.type !== "run_started" && event?.type !== "keyframe") {
    return "an event log begins with run_started or keyframe";
  }
  const [schema, reads] =
    event.type === "keyframe" ? [event.state?.schema, KEYFRAME_SCHEMA] : [event.schema, SCHEMA];
  if (schema === reads) return null;
  return (
    `this log has schema ${JSON.stringify(schema)}, and this viewer reads ${reads}: ` +
    "open it with the Underglass that wrote it"
  );
}
