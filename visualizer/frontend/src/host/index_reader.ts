/**
 * The file of an indexed log, read in ranges: its directory, its chunks of events, and the states between them.
 * `visualizer/indexed/index_file.py` writes it and describes it.
 */

import { LogError, Model } from "../model/index.ts";
import { IndexedEvents, type Section, unpackFacts } from "../model/indexed_events.ts";
import { INDEXED } from "../model/vocabulary.ts";
import { asBytes } from "./log_bytes.ts";

/** a file that is read where it is needed */
export interface Ranges {
  size: number;
  read: (from: number, to: number) => Promise<Uint8Array>;
}

const MAGIC = "UGINDEX\u0001";
const FOOTER = 24; // bytes
const FRAME = 12; // bytes before each chunk of a stream
const END = 1 << 16; // bytes read at first; most directories are shorter
/** The most bytes that are read together. */
const PIECE = 1 << 18;

/** Parts with the tokens of requests that are kept unpacked: a prefix tree has requests of many. */
const MOST_PARTS = 64;
const KNOWN = "what is known of steps";

/** An empty block that says that it is the last one: see `chunk.py`. */
const LAST_BLOCK = Uint8Array.of(3, 0);

const NOTHING = new Uint8Array(0);

type Part = [offset: number, length: number, crc: number, plain: number];
interface Directory {
  vocabulary: number;
  cluster: boolean;
  first: number;
  chunks: [...Part, events: number, step: number][];
  facts: Record<"steps" | "requests" | "passes" | "lives" | "contents", Part[]>;
  slices: [...Part, chunk: number][];
}

/** The bytes of a file that is in memory. */
export const rangesOf = (data: ArrayBufferView): Ranges => {
  const bytes = asBytes(data);
  return { size: bytes.length, read: async (from, to) => bytes.subarray(from, to) };
};

/** A file of a server that answers in ranges. */
export async function rangesAt(url: string): Promise<Ranges> {
  const read = async (range: string) => {
    const answer = await fetch(url, { headers: { Range: `bytes=${range}` } });
    if (answer.status !== 206) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
    return { answer, bytes: new Uint8Array(await answer.arrayBuffer()) };
  };
  const { answer, bytes } = await read(`-${END}`);
  const size = Number(answer.headers.get("Content-Range")?.split("/")[1]);
  const end = size - bytes.length;
  return {
    size,
    read: async (from, to) =>
      from >= end ? bytes.subarray(from - end, to - end) : (await read(`${from}-${to - 1}`)).bytes,
  };
}

/** Whether bytes are those of an index. */
export const isIndex = (data: ArrayBufferView) =>
  new TextDecoder("latin1").decode(asBytes(data).subarray(0, MAGIC.length)) === MAGIC;

export class IndexReader {
  #ranges: Ranges;
  #directory: Directory;

  private constructor(ranges: Ranges, directory: Directory) {
    this.#ranges = ranges;
    this.#directory = directory;
  }

  /** Reads the directory. Throws a `LogError` if the file is damaged or of another version. */
  static async open(ranges: Ranges) {
    const { size } = ranges;
    const footer = await ranges.read(Math.max(0, size - FOOTER), size);
    const view = new DataView(footer.buffer, footer.byteOffset, footer.length);
    const isWhole = footer.length === FOOTER && isIndex(footer.subarray(16));
    const begin = isWhole ? Number(view.getBigUint64(0, true)) : 0;
    const length = isWhole ? view.getUint32(8, true) : 0;
    if (!isWhole || begin + length + FOOTER !== size)
      throw new LogError("the end of the index is missing or damaged");
    const bytes = await ranges.read(begin, begin + length);
    const packed = checked(bytes, view.getUint32(12, true), "the directory of the index");
    const directory = JSON.parse(new TextDecoder().decode(await inflated(packed)));
    if (directory.vocabulary !== INDEXED)
      throw new LogError("the index is of another version: index the log again");
    return new IndexReader(ranges, directory);
  }

  get isCluster() {
    return this.#directory.cluster;
  }

  get count() {
    return this.#directory.chunks.length;
  }

  get lastStep() {
    return this.#directory.chunks.at(-1)?.[5] ?? 0;
  }

  /**
   * Reads what the index knows of the whole log. Yields the part that is read, and returns the model, whose events are
   * read when they are needed, as are the forward passes. Throws a `LogError` if a part is damaged.
   */
  async *model(): AsyncGenerator<number, Model> {
    const { steps, requests, passes, lives, contents } = this.#directory.facts;
    const details = [lives, contents].map((parts) => {
      const events = new IndexedEvents(MOST_PARTS);
      for (const part of parts) {
        const read = async () => ({ state: null, chunks: await this.#all([part]) });
        events.addSection({ counts: [1], read }, unpackFacts);
      }
      return events;
    });
    const model = new Model();
    const known = this.#parts([...steps, ...requests]);
    let read = 0;
    for await (const bytes of known) {
      model.restore(bytes, details, read % steps.length);
      yield ++read / (2 * steps.length);
    }
    const events = new IndexedEvents();
    for (const section of this.#sections()) events.addSection(section);
    model.restored(events, details, async () => {
      try {
        for await (const bytes of this.#parts(passes)) model.restore(bytes);
      } catch (error) {
        events.damaged();
        throw error;
      }
    });
    return model;
  }

  /** The chunks from one state to the next. */
  #sections(): Section[] {
    const { chunks, slices } = this.#directory;
    return [null, ...slices].map((slice, number) => {
      const first = slice?.[4] ?? 0;
      const own = chunks.slice(first, slices[number]?.[4]);
      const read = async () => {
        const nameOf = (part: number) =>
          slice && !part ? "a state" : this.#nameOf(first + part - Number(!!slice));
        const parts = await this.#all(slice ? [slice, ...own] : own, nameOf);
        return { state: slice && (parts.shift() as Uint8Array), chunks: parts };
      };
      return { counts: own.map((chunk) => chunk[4]), read };
    });
  }

  /** The unpacked chunks of events. Throws a `LogError` for a damaged one. */
  chunks() {
    return this.#parts(this.#directory.chunks, (number) => this.#nameOf(number));
  }

  async #all(...parts: [Part[] | [...Part, ...unknown[]][], ((number: number) => string)?]) {
    const all: Uint8Array[] = [];
    for await (const bytes of this.#parts(...parts)) all.push(bytes);
    return all;
  }

  /** Successive parts of the file, unpacked. While some are unpacked, the next ones are read. */
  async *#parts(
    parts: Part[] | [...Part, ...unknown[]][],
    nameOf: (number: number) => string = () => KNOWN,
  ): AsyncGenerator<Uint8Array> {
    const startFrom = (number: number) => {
      const begin = parts[number][0];
      let next = number + 1;
      while (next < parts.length && parts[next][0] + parts[next][1] - begin <= PIECE) next++;
      const end = parts[next - 1][0] + parts[next - 1][1];
      const reading = begin < end ? this.#ranges.read(begin, end) : Promise.resolve(NOTHING);
      reading.catch(() => {}); // an error is for those who wait for the bytes
      return { begin, next, reading };
    };
    let piece = parts.length ? startFrom(0) : null;
    for (let number = 0; piece; ) {
      const { begin, next, reading }: ReturnType<typeof startFrom> = piece;
      const bytes = await reading;
      piece = next < parts.length ? startFrom(next) : null;
      const own = parts.slice(number, next);
      const packed = own.map(([offset, length]) =>
        bytes.subarray(offset - begin, offset - begin + length),
      );
      const damaged = own.findIndex(([, , crc], index) => crc32(packed[index]) !== crc);
      const whole = damaged < 0 ? own.length : damaged;
      const plain = await inflated(...packed.slice(0, whole));
      let at = 0;
      for (const [, , , length] of own.slice(0, whole)) yield plain.subarray(at, (at += length));
      if (damaged >= 0) throw wrong(nameOf(number + damaged));
      number = next;
    }
  }

  #nameOf(number: number) {
    const { chunks, first } = this.#directory;
    const before = chunks.slice(0, number).reduce((sum, one) => sum + one[4], first);
    return `events ${before} to ${before + chunks[number][4] - 1}`;
  }
}

/** The chunks of an index that the server is still writing: `visualizer/live/growing.py` describes the stream. */
export class ChunkStream {
  #url: string;
  /** The options of the page, which the server knows at the end. */
  options: Record<string, any> = {};

  constructor(url: string) {
    this.#url = url;
  }

  /** Throws a `LogError` where the log is damaged. */
  async *chunks(): AsyncGenerator<{ bytes: Uint8Array; share: number }> {
    const { body } = await fetch(this.#url);
    const reader = (body as ReadableStream<Uint8Array>).getReader();
    let held: Uint8Array = NOTHING;
    const take = async (length: number) => {
      const pieces = [held];
      for (let size = held.length; size < length; ) {
        const { value, done } = await reader.read();
        if (done) throw new LogError("the server has ended");
        pieces.push(value);
        size += value.length;
      }
      const bytes = joined(pieces);
      held = bytes.subarray(length);
      return bytes.subarray(0, length);
    };
    try {
      for (;;) {
        const frame = await take(FRAME);
        const view = new DataView(frame.buffer, frame.byteOffset, FRAME);
        const length = view.getUint32(0, true);
        if (length) {
          yield { bytes: await inflated(await take(length)), share: view.getFloat32(8, true) };
          continue;
        }
        const text = new TextDecoder().decode(await take(view.getUint32(4, true)));
        const { error, options = {} } = JSON.parse(text);
        this.options = options;
        if (error) throw new LogError(error);
        return;
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }
}

function joined(pieces: Uint8Array[]) {
  if (pieces.length === 1) return pieces[0];
  const bytes = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** Parts of the file, unpacked, one after the other. */
async function inflated(...parts: Uint8Array[]) {
  const blocks = [...parts, LAST_BLOCK] as Uint8Array<ArrayBuffer>[];
  const packed = new ReadableStream<(typeof blocks)[number]>({
    start(source) {
      blocks.forEach((block) => source.enqueue(block));
      source.close();
    },
  });
  const plain = packed.pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(plain).arrayBuffer());
}

function checked(bytes: Uint8Array, crc: number, what: string) {
  if (crc32(bytes) !== crc) throw wrong(what);
  return bytes;
}

const wrong = (what: string) => new LogError(`the checksum of ${what} is wrong`);

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** The checksum that `zlib.crc32` computes. */
function crc32(bytes: Uint8Array) {
  let crc = -1;
  for (let i = 0; i < bytes.length; i++) crc = TABLE[(crc ^ bytes[i]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}
