/**
 * The events of an indexed log: chunks of typed columns, unpacked where they are read. A million events take a quarter
 * of the memory of their lines, and become objects in a third of the time that parsing takes.
 *
 * How a type is stored follows from the vocabulary; `visualizer/indexed/columns.py` writes the same.
 */

import { firstWhere, keep } from "./columns.ts";
import type { Fact } from "./events.ts";
import { VOCABULARY as FACTS } from "./facts.ts";
import { LogError } from "./log.ts";
import { VOCABULARY } from "./vocabulary.ts";

/** Unpacked chunks that are kept: a step may be in two, and readers look at neighbours. */
const KEPT = 4;
const ALIGNED = 8; // bytes, as in `columns.py`
const decoder = new TextDecoder();

type Values = ArrayLike<any>;
type Typed = Values & { slice: () => Values };
/** Returns the events of a log in an unpacked chunk. */
export type Unpack = (bytes: Uint8Array) => any[];
/** Reads so many values, at least one. */
type Get = (count: number, source: ColumnSource) => Values;

/** The typed array of each code; "c", "m" and the numbers of a JSON list have none. */
const ARRAYS: Record<string, new (buffer: ArrayBufferLike, at: number, length: number) => Typed> = {
  b: Int8Array,
  B: Uint8Array,
  h: Int16Array,
  H: Uint16Array,
  i: Int32Array,
  d: Float64Array,
  D: Float64Array,
};
const SIZES: Record<string, number> = { b: 1, B: 1, h: 2, H: 2, i: 4, d: 8, D: 8, c: 0, m: 0 };

interface Header {
  kinds: [number: number, count: number, column: number, value: number][];
  columns: [code: string, count: number, constant?: number][];
  strings: number; // bytes of the table of strings
  values: number; // and of the JSON values
}

/** The columns of a chunk, in order. */
class ColumnSource {
  header: Header;
  #bytes: Uint8Array;
  #begin: number;
  #column = 0;
  #value = 0;
  strings: string[];
  #values: any[];

  /** @param bytes unpacked, from a multiple of 8 of their buffer on */
  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    const json = (from: number, to: number) => JSON.parse(decoder.decode(bytes.subarray(from, to)));
    this.#begin = 4 + length;
    this.header = json(4, this.#begin);
    const end = bytes.length - this.header.values;
    this.#values = json(end, bytes.length);
    this.strings = json(end - this.header.strings, end);
  }

  numbers(): Values {
    const [code, count, constant] = this.header.columns[this.#column++];
    if (code === "c") return constants(count, constant as number);
    if (code === "m") return this.values(count);
    const { buffer, byteOffset } = this.#bytes;
    const column = new ARRAYS[code](buffer, byteOffset + this.#begin, count);
    this.#begin += Math.ceil((SIZES[code] * count) / ALIGNED) * ALIGNED;
    return column;
  }

  texts(): string[] {
    const numbers = this.numbers();
    const texts = new Array(numbers.length);
    for (let i = 0; i < texts.length; i++) texts[i] = this.strings[numbers[i]];
    return texts;
  }

  values(count: number): any[] {
    this.#value += count;
    return this.#values.slice(this.#value - count, this.#value);
  }
}

/** The longest column of zeros that is not made anew, and its zeros. */
const ZEROS = new Uint8Array(8192);

/** So many equal numbers: most are zeros. */
const constants = (count: number, constant: number) =>
  Object.is(constant, 0) && count <= ZEROS.length
    ? ZEROS.subarray(0, count)
    : new Float64Array(count).fill(constant);

/** The values as an array. */
function arrayOf(values: Values): any[] {
  if (Array.isArray(values)) return values;
  const array = new Array(values.length);
  for (let i = 0; i < array.length; i++) array[i] = values[i];
  return array;
}

function sumOf(values: Values): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  return sum;
}

const texts: Get = (_count, source) => source.texts();
const values: Get = (count, source) => source.values(count);

/** The items of lists, one after the other, as lists. */
const listsOf =
  (item: Get): Get =>
  (_count, source) => {
    const lengths = source.numbers();
    const total = sumOf(lengths);
    const items = total ? arrayOf(item(total, source)) : [];
    const lists = new Array(lengths.length);
    let at = 0;
    // A slice has no spare room, which an array that grows has: the state keeps many of these lists.
    for (let i = 0; i < lists.length; i++) lists[i] = items.slice(at, (at += lengths[i]));
    return lists;
  };

/** Numbers, NaN in place of those that are missing. */
const numbersOrNaN =
  (item: Get): Get =>
  (_count, source) => {
    const flags = source.numbers();
    const total = sumOf(flags);
    const known = total ? item(total, source) : [];
    if (total === flags.length) return known;
    const numbers = new Float64Array(flags.length);
    for (let i = 0, at = 0; i < numbers.length; i++) numbers[i] = flags[i] ? known[at++] : NaN;
    return numbers;
  };

/** Lists of numbers as parts of one typed array, without an array of all numbers in between. */
const viewsOf =
  (item: Get): Get =>
  (_count, source) => {
    const lengths = arrayOf(source.numbers());
    const total = sumOf(lengths);
    const items = total ? item(total, source) : [];
    const part = (items as Float64Array).subarray ?? (items as number[]).slice;
    let at = 0;
    return lengths.map((length) => part.call(items as any, at, (at += length)));
  };

/** A column that stays packed: its values are made when they are asked for, because most are never looked at. */
export interface Column<Value = any> {
  at: (row: number) => Value;
  /** Of structs, those of their fields. */
  columns?: Column[];
}

/** What an index knows of the requests of a part, or of their contents: a column for each field. */
export type Table<Fields> = { [Name in keyof Fields]: Column<NonNullable<Fields[Name]>> };

type GetColumn = (count: number, source: ColumnSource) => Column;

/** Lists of values of a column. */
export class Lists implements Column {
  ends: Uint32Array = NONE; // none if all lists are empty
  items: Column | null = null;

  constructor(lengths: Values, item: GetColumn, source: ColumnSource) {
    const total = sumOf(lengths);
    if (!total) return;
    this.ends = new Uint32Array(lengths.length);
    for (let i = 0, end = 0; i < lengths.length; i++) this.ends[i] = end += lengths[i];
    this.items = item(total, source);
  }

  at(row: number) {
    return this.of(this.ends[row - 1] ?? 0, this.ends[row] ?? 0, this.items);
  }

  /** The value that some successive items are. */
  of(from: number, to: number, items: Column | null): any {
    const list: any[] = [];
    for (let at = from; at < to; at++) list.push(items?.at(at));
    return list;
  }

  /** The lists that are not empty, each with its row. */
  *rows(): Generator<[number, any[]]> {
    for (let row = 0, before = 0; row < this.ends.length; before = this.ends[row++])
      if (this.ends[row] > before) yield [row, this.at(row)];
  }
}

const NONE = new Uint32Array(0);

/** Values of a column, null where one is missing. */
class Optionals extends Lists {
  of(from: number, to: number, items: Column | null) {
    return from < to ? items?.at(from) : null;
  }
}

/** A column in memory of its own, and of a constant only one value. */
function compact(column: Values): Column {
  const first = column[0];
  for (let i = 1; i < column.length; i++)
    if (!Object.is(column[i], first)) return (column as any[]).slice();
  return { at: () => first };
}

// The closure is made where nothing else is known, because it would keep the bytes of the whole part.
const rowsIn = (columns: Column[]): Column => ({
  columns,
  at: (row) => columns.map((column) => column.at(row)),
});

const optional =
  (item: Get): Get =>
  (_count, source) => {
    const flags = source.numbers();
    const total = sumOf(flags);
    const known = total ? item(total, source) : [];
    if (total === flags.length) return known;
    let at = 0;
    const items = new Array(flags.length);
    for (let i = 0; i < items.length; i++) items[i] = flags[i] ? known[at++] : null;
    return items;
  };

/** Structs and tuples that are lists in a log. */
const rowsOf =
  (items: Get[]): Get =>
  (count, source) => {
    const columns = items.map((item) => item(count, source));
    const rows = new Array(count);
    for (let i = 0; i < count; i++) {
      const row = new Array(columns.length);
      for (let at = 0; at < columns.length; at++) row[at] = columns[at][i];
      rows[i] = row;
    }
    return rows;
  };

/** Events of one kind. A field that a log leaves out, because it has its default, is undefined. */
function eventsOf(type: string, fields: { name: string; isOptional: boolean; item: Get }[]): Get {
  const template = Object.fromEntries([
    ["type", type],
    ...fields.map(({ name }) => [name, undefined]),
  ]);
  return (count, source) => {
    const events = new Array(count);
    for (let i = 0; i < count; i++) events[i] = { ...template };
    for (const { name, isOptional, item } of fields) {
      const column = item(count, source);
      for (let i = 0; i < count; i++) {
        const value = column[i];
        if (!isOptional || !isEmpty(value)) events[i][name] = value;
      }
    }
    return events;
  };
}

/** Whether a value is the default of an optional field; all of them are empty. */
function isEmpty(value: any) {
  if (!value) return true;
  if (Array.isArray(value)) return !value.length;
  if (typeof value !== "object") return false;
  for (const _ in value) return false;
  return true;
}

/**
 * How the events of a vocabulary are stored, in the notation that `checkerOf` explains.
 *
 * @param tables kinds of which all events of a chunk are one, with a `Column` for each field
 * @param views fields whose numbers are parts of a typed array
 * @param packed fields of a kind with one event, each a list that stays a `Column`
 */
function shapesOf(
  vocabulary: Record<string, string>,
  tables: string[] = [],
  views: string[] = [],
  packed: string[] = [],
): Get[] {
  type Field = Parameters<typeof eventsOf>[1][number];
  const fieldsOf = (text: string) => [...text.matchAll(/(\w+)(\??):(\S+)/g)];
  const partsOf = (text: string): Field[] =>
    fieldsOf(text).map(([, name, sign, code]) => ({
      name,
      isOptional: !!sign,
      item: packed.includes(name)
        ? (_count, source) => [columnOf(code.slice(1))(source.numbers()[0], source)]
        : shapeOf(code, views.includes(name)),
    }));
  const codesOf = (code: string) => {
    const text = vocabulary[code.slice(1)];
    if (code[0] === "(") return code.slice(1).split(",");
    return code[0] === "<" && text[0] === "#" ? fieldsOf(text).map(([, , , part]) => part) : null;
  };
  const columnOf =
    (code: string): GetColumn =>
    (count, source) => {
      const codes = codesOf(code);
      if (codes) return rowsIn(codes.map((part) => columnOf(part)(count, source)));
      const isOptional = code[0] === "?";
      if (!isOptional && code[0] !== "[") return compact(shapeOf(code)(count, source));
      return new (isOptional ? Optionals : Lists)(
        source.numbers(),
        columnOf(code.slice(1)),
        source,
      );
    };
  const shapeOf = (code: string, areViews = false): Get => {
    const rest = code.slice(1);
    const codes = codesOf(code);
    if (codes) return rowsOf(codes.map((part) => shapeOf(part)));
    switch (code[0]) {
      case "s":
      case "'":
        return texts;
      case "b":
        return (_count, source) => Array.from(source.numbers(), Boolean);
      case "i":
      case "n":
        return (_count, source) => source.numbers();
      case "[":
        return (areViews ? viewsOf : listsOf)(shapeOf(rest, areViews));
      case "?":
        return (areViews ? numbersOrNaN : optional)(shapeOf(rest));
      case "*":
        return (count, source) => eventsIn(SHAPES)(count, source);
      default:
        return values;
    }
  };
  const events = Object.entries(vocabulary).filter(([name]) => /^[a-z]/.test(name));
  return events.map(([type, text]) => {
    if (!tables.includes(type)) return eventsOf(type, partsOf(text));
    const columns = fieldsOf(text).map(([, name, , code]) => [name, columnOf(code)] as const);
    return (count, source) => {
      const table = columns.map(([name, get]) => [name, get(count, source)]);
      return [{ type, length: count, ...Object.fromEntries(table) }];
    };
  });
}

const SHAPES = shapesOf(VOCABULARY);
/** Events of several kinds. The kinds are in the order of their columns. */
const eventsIn =
  (shapes: Get[]): Get =>
  (_count, source) => {
    const numbers = source.numbers();
    const counts = new Int32Array(shapes.length);
    for (let i = 0; i < numbers.length; i++) counts[numbers[i]]++;
    const kinds = shapes.map((shape, kind) => (counts[kind] ? shape(counts[kind], source) : []));
    const next = new Int32Array(shapes.length);
    const events = new Array(numbers.length);
    for (let i = 0; i < events.length; i++) events[i] = kinds[numbers[i]][next[numbers[i]]++];
    return events;
  };

/** A function that returns the events of an unpacked chunk of a vocabulary. */
export function unpackerOf(...vocabulary: Parameters<typeof shapesOf>) {
  const all = eventsIn(shapesOf(...vocabulary));
  return (bytes: Uint8Array) => all(0, new ColumnSource(bytes)) as any[];
}

/** The events of an unpacked chunk of an engine's log. */
const unpackEvents = unpackerOf(VOCABULARY);

const unpackAll = unpackerOf(
  FACTS,
  ["request", "content", "life"],
  "step first last scheduled counts times number begin launched ready end decodes prefills".split(
    " ",
  ),
  "chunks computed blocked deferred missing skipped".split(" "),
);

/** What an unpacked part of an index says of steps and requests; its requests are a `Table`, as are their contents and lives. */
export const unpackFacts = (bytes: Uint8Array): Fact[] =>
  bytes.length ? unpackAll(bytes).filter(Boolean) : [];

/** Bytes of chunks and states that are kept: those of the sections that were needed last. */
const MOST_KEPT = 8 << 20;
/** Sections that are kept, however long they are: those of two steps, or of the scenes of a tour. */
const LEAST_KEPT = 32;

/** Some chunks of an index, and the state before them: they are read together. */
export interface Section {
  counts: number[]; // the events of each chunk
  read: () => Promise<{ state: Uint8Array | null; chunks: Uint8Array[] }>;
}

/** A section of which is known where its first chunk and its first event are. */
interface PlacedSection extends Section {
  chunk: number;
  first: number;
  state: Uint8Array | null;
  reading: Promise<void> | null;
}

/** Events were looked at that are not read yet. */
export class Absent extends Error {
  #fetch: () => Promise<void>;

  constructor(fetch: () => Promise<void>) {
    super();
    this.#fetch = fetch;
  }

  /** Reads the events, then calls `again`; not, if they cannot be read. Throws an error that is not about absent events. */
  static fetch(error: unknown, again: () => unknown) {
    if (!(error instanceof Absent)) throw error;
    return error.#fetch().then(again, () => {});
  }
}

/** The chunks of a log in place of its lines; see `LogLines`. */
export class IndexedEvents {
  length = 0;
  #chunks: { bytes: Uint8Array | null; first: number; unpack: Unpack }[] = [];
  #sections: PlacedSection[] = [];
  /** The sections that are read and their bytes, the one that was needed last at the end. */
  #read: Map<PlacedSection, number> = new Map();
  #mostKept = MOST_KEPT;
  #leastKept = LEAST_KEPT;
  /** How many sections a search reads at once: twice as many each time, because it may look at all. */
  #ahead = 1;
  #kept: number;
  #unpacked: Map<number, any[]> = new Map();
  /** Called when a section cannot be read. */
  damaged: () => void = () => {};

  /** @param kept how many unpacked chunks are kept */
  constructor(kept = KEPT) {
    this.#kept = kept;
  }

  /** Adds the next chunk and returns its events. Throws a `LogError` if they cannot be read. */
  push(bytes: Uint8Array, unpack: Unpack = unpackEvents): any[] {
    let events: any[];
    try {
      events = unpack(bytes);
    } catch {
      throw new LogError("it cannot be unpacked", { seq: this.length });
    }
    this.add(bytes, events.length, unpack);
    return events;
  }

  /** Adds the next chunk, which has so many events. */
  add(bytes: Uint8Array | null, count: number, unpack: Unpack = unpackEvents) {
    this.#chunks.push({ bytes, first: this.length, unpack });
    this.length += count;
  }

  /** Adds the next chunks, which are read when they are needed. */
  addSection(section: Section, unpack?: Unpack) {
    const place = { chunk: this.#chunks.length, first: this.length };
    this.#sections.push({ ...section, ...place, state: null, reading: null });
    for (const count of section.counts) this.add(null, count, unpack);
  }

  /** Reads what is not there yet of the sections of the events from one index to another; null: nothing. */
  fetch(from: number, to: number) {
    return this.#need(this.#sections.slice(this.#sectionOf(from), this.#sectionOf(to) + 1));
  }

  /** Reads what is not there yet of the sections of some events; null: nothing. */
  fetchEach(indexes: Set<number>) {
    return this.#need([...indexes].map((index) => this.#sections[this.#sectionOf(index)]));
  }

  #need(sections: PlacedSection[]): Promise<unknown> | null {
    this.#ahead = 1;
    const absent = sections.filter(({ chunk }) => !this.#chunks[chunk].bytes);
    this.#leastKept = Math.max(LEAST_KEPT, 2 * sections.length);
    for (const section of sections) this.#note(section);
    return absent.length ? Promise.all(absent.map((section) => this.#fetch(section))) : null;
  }

  async fetchAll() {
    this.#mostKept = Infinity;
    for (const section of this.#sections) await this.#fetch(section);
  }

  /** The last state of the index before an event: the index of the first event after it, and its bytes. */
  stateBefore(index: number) {
    const section = this.#sections[this.#sectionOf(index)];
    if (!section?.first) return null; // the first section has no state
    return { first: section.first, bytes: () => section.state ?? this.#missing(section) };
  }

  #sectionOf(index: number) {
    return firstWhere(this.#sections.length, (one) => this.#sections[one].first > index) - 1;
  }

  #fetch(section: PlacedSection) {
    const read = async () => {
      const { state, chunks } = await section.read();
      section.state = state;
      for (const [i, bytes] of chunks.entries()) this.#chunks[section.chunk + i].bytes = bytes;
      const size = chunks.reduce((sum, { length }) => sum + length, state?.length ?? 0);
      this.#note(section, size);
    };
    section.reading ??= read().catch((error) => {
      section.reading = null;
      this.damaged();
      throw error;
    });
    return section.reading;
  }

  /** Notes that a section is needed. Of too many, those go that were not needed for the longest time. */
  #note(section: PlacedSection, size = this.#read.get(section)) {
    if (size === undefined) return;
    this.#read.delete(section);
    this.#read.set(section, size);
    let total = 0;
    for (const bytes of this.#read.values()) total += bytes;
    for (const [old, bytes] of this.#read) {
      if (total <= this.#mostKept || this.#read.size <= this.#leastKept) break;
      total -= bytes;
      this.#read.delete(old);
      old.state = old.reading = null;
      for (const i of old.counts.keys()) this.#chunks[old.chunk + i].bytes = null;
    }
  }

  #missing(section: PlacedSection): never {
    throw new Absent(async () => {
      const at = this.#sections.indexOf(section);
      const sections = this.#sections.slice(at, at + this.#ahead);
      this.#ahead *= 2;
      this.#leastKept += sections.length; // a search may need all that it has asked for at once
      await Promise.all(sections.map((one) => this.#fetch(one)));
    });
  }

  at(index: number) {
    return this.range(index, index + 1)[0];
  }

  /** The events from one index to just before another. */
  range(from: number, to: number): any[] {
    const events: any[] = [];
    const last = Math.min(to, this.length);
    for (let at = Math.max(0, from); at < last; ) {
      const number = firstWhere(this.#chunks.length, (one) => this.#chunks[one].first > at) - 1;
      const chunk = this.#unpack(number);
      const { first } = this.#chunks[number];
      const end = Math.min(last, first + chunk.length);
      for (; at < end; at++) events.push(chunk[at - first]);
    }
    return events;
  }

  #unpack(number: number) {
    const kept = this.#unpacked.get(number);
    if (kept) return kept;
    const { bytes, first, unpack } = this.#chunks[number];
    const events = unpack(bytes ?? this.#missing(this.#sections[this.#sectionOf(first)]));
    return keep(this.#unpacked, number, events, this.#kept);
  }
}
