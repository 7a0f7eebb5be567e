/**
 * The events of a log as types, computed from the table of their fields that is generated from the Python structs:
 * `Events["step_started"]` is `{ type: "step_started"; step: number }`. `checkerOf` in `log.ts` explains the notation
 * and checks values against the same table.
 */

import type { VOCABULARY as FACTS } from "./facts.ts";
import type { VOCABULARY } from "./vocabulary.ts";

/** The types without parts. */
interface Plain {
  i: number;
  n: number;
  s: string;
  b: boolean;
  a: any;
  "*": LogEvent;
}

type Split<Text, By extends string> = Text extends `${infer First}${By}${infer Rest}`
  ? [First, ...Split<Rest, By>]
  : [Text];

type TypeOf<Table, Code> = Code extends keyof Plain
  ? Plain[Code]
  : Code extends `?${infer Part}`
    ? TypeOf<Table, Part> | null
    : Code extends `[${infer Part}`
      ? TypeOf<Table, Part>[]
      : Code extends `{${infer Part}`
        ? Record<string, TypeOf<Table, Part>>
        : Code extends `(${infer Parts}`
          ? TupleOf<Table, Split<Parts, ",">>
          : Code extends `<${infer Name extends keyof Table & string}`
            ? StructOf<Table, Name>
            : Code extends `'${infer Values}`
              ? Split<Values, "|">[number]
              : never;

type TupleOf<Table, Codes> = { [At in keyof Codes]: TypeOf<Table, Codes[At]> };

type RowOf<Table, Fields> = Fields extends [infer Field, ...infer Rest]
  ? Field extends `${string}?:${infer Code}`
    ? [TypeOf<Table, Code>?, ...RowOf<Table, Rest>]
    : Field extends `${string}:${infer Code}`
      ? [TypeOf<Table, Code>, ...RowOf<Table, Rest>]
      : never
  : [];

type ObjectOf<Table, Field extends string> = {
  [F in Field as F extends `${string}?:${string}`
    ? never
    : Split<F, ":">[0]]: F extends `${string}:${infer Code}` ? TypeOf<Table, Code> : never;
} & {
  [F in Field as F extends `${infer Name}?:${string}`
    ? Name
    : never]?: F extends `${string}:${infer Code}` ? TypeOf<Table, Code> : never;
};

type StructOf<Table, Name extends keyof Table & string> = Table[Name] extends `#${infer Fields}`
  ? RowOf<Table, Split<Fields, " ">>
  : ObjectOf<Table, Split<Table[Name], " ">[number] & string> &
      (Name extends Capitalize<Name> ? unknown : { type: Name });

/** The events and structs of a table by their names. */
export type EventsOf<Table> = { [Name in keyof Table & string]: StructOf<Table, Name> };

/** A struct has a capital letter. */
export type EventIn<Table> = Extract<EventsOf<Table>[keyof Table & string], { type: string }>;

export type Events = EventsOf<typeof VOCABULARY>;
export type LogEvent = EventIn<typeof VOCABULARY>;
/** What an index knows of steps and requests. */
export type Facts = EventsOf<typeof FACTS>;
export type Fact = EventIn<typeof FACTS>;
