/**
 * The lines of a log, stored as bytes. An event is parsed once when it arrives and again each time it is read,
 * because a million events as objects take ten times the memory of their lines.
 *
 * Bytes may be cut anywhere, as streams and decompressors do.
 */

import { firstWhere, roomFor } from "./columns.ts";
import { LogError, problemWith } from "./log.ts";

const NEWLINE = 10;
const SPACE = 32; // and all smaller bytes
/** The most bytes that are decoded together. */
const PIECE = 1 << 18;
/** The most bytes of a line: a file of one endless line would fill the memory. */
const MAX_LINE = 1 << 26;
/** Size of the blocks of bytes; much larger than what a stream gives at once, because the end of a block stays empty. */
const BLOCK = 1 << 20;

const decoder = new TextDecoder();
const encoder = new TextEncoder();

export class LogLines {
  /** The number of events. */
  length = 0;
  /** `end` bytes are in use; `first` is the index of its first event. */
  #blocks = [{ bytes: new Uint8Array(0), end: 0, first: 0 }];
  /** The offset of each non-empty line in its block, and the number of these lines. */
  #starts = new Uint32Array(1024);
  #known = 0;
  /** The pieces of an incomplete line. */
  #rest: Uint8Array[] = [];
  #held = 0; // bytes in them
  /** Index of the event before which there was an empty line, for each of them. */
  #empty: number[] = [];

  /**
   * Adds bytes of the log and calls `take` with the event of each line that is now complete. Throws a `LogError`
   * for a line that is not a valid event, after the events before it have been taken.
   */
  push(bytes: Uint8Array, take: (event: any) => void) {
    for (let from = 0; from < bytes.length; ) {
      const piece = bytes.subarray(from, from + PIECE);
      from += piece.length;
      const cut = piece.lastIndexOf(NEWLINE) + 1;
      const whole = piece.subarray(0, cut);
      const rest = this.#rest;
      if (cut) this.#rest = [];
      this.#rest.push(piece.slice(cut));
      this.#held = (cut ? -cut : this.#held) + piece.length;
      if (cut) this.#take([...rest, whole], take);
      if (this.#held > MAX_LINE)
        throw new LogError("longer than any event", { line: this.lineOf(this.length) });
    }
  }

  /** Ends the log: a last line without a line break is dropped unless it is complete. */
  end(take: (event: any) => void) {
    const rest = this.#rest;
    this.#rest = [];
    try {
      const text = rest.map((piece) => decoder.decode(piece, { stream: true })).join("");
      JSON.parse(text + decoder.decode());
    } catch {
      return;
    }
    this.#take([...rest, Uint8Array.of(NEWLINE)], take);
  }

  /** Adds parsed events. */
  add(events: any[]) {
    if (!events.length) return;
    const text = events.map((event) => `${JSON.stringify(event)}\n`).join("");
    const { block, at, bytes } = this.#store([encoder.encode(text)]);
    this.#index(block, at, bytes);
    this.length = this.#known;
  }

  at(index: number) {
    return this.range(index, index + 1)[0];
  }

  /** The events from one index to just before another. */
  range(from: number, to: number) {
    const events = [];
    const last = Math.min(to, this.length);
    for (let at = Math.max(0, from); at < last; ) {
      const { bytes, end, until } = this.#blockOf(at);
      const stop = Math.min(last, until);
      const piece = bytes.subarray(this.#starts[at], stop < until ? this.#starts[stop] : end);
      for (const line of linesOf(piece)) events.push(JSON.parse(line));
      at = stop;
    }
    return events;
  }

  /** The line of an event in the file, from 1. */
  lineOf(index: number) {
    return index + 1 + this.#empty.filter((before) => before <= index).length;
  }

  #blockOf(index: number) {
    const blocks = this.#blocks;
    const low = firstWhere(blocks.length, (one) => blocks[one].first > index) - 1;
    const { bytes, end } = this.#blocks[low];
    return { bytes, end, until: this.#blocks[low + 1]?.first ?? this.#known };
  }

  /** Adds complete lines, in pieces. */
  #take(pieces: Uint8Array[], take: (event: any) => void) {
    const { block, at, bytes } = this.#store(pieces);
    this.#index(block, at, bytes);
    for (const line of linesOf(bytes)) {
      let event: any;
      let reason = null;
      try {
        event = JSON.parse(line);
      } catch {
        reason = "not valid JSON";
      }
      reason ??= problemWith(event, this.length === 0);
      if (reason) throw new LogError(reason, { line: this.lineOf(this.length) });
      this.length++;
      take(event);
    }
  }

  /** Copies lines into the last block, or into a new one. */
  #store(pieces: Uint8Array[]) {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    let block = this.#blocks[this.#blocks.length - 1];
    if (block.end + length > block.bytes.length) {
      const room = new Uint8Array(Math.max(BLOCK, length));
      block = { bytes: room, end: 0, first: this.length };
      this.#blocks.push(block);
    }
    const at = block.end;
    for (const piece of pieces) {
      block.bytes.set(piece, block.end);
      block.end += piece.length;
    }
    return { block, at, bytes: block.bytes.subarray(at, block.end) };
  }

  /** Indexes the lines of a block from `at` on. */
  #index(block: { bytes: Uint8Array }, at: number, bytes: Uint8Array) {
    for (let start = at; start < at + bytes.length; ) {
      const end = block.bytes.indexOf(NEWLINE, start);
      if (isEmpty(block.bytes, start, end)) this.#empty.push(this.#known);
      else {
        this.#starts = roomFor(this.#starts, this.#known + 1);
        this.#starts[this.#known++] = start;
      }
      start = end + 1;
    }
  }
}

/** The non-empty lines. */
function linesOf(bytes: Uint8Array) {
  const lines = decoder.decode(bytes).split("\n");
  return lines.filter((line) => line.charCodeAt(0) > SPACE || line.trim());
}

function isEmpty(bytes: Uint8Array, start: number, end: number) {
  let at = start;
  while (at < end && bytes[at] <= SPACE) at++;
  return at === end;
}
