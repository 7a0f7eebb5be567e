/**
 * A GIF encoder: each frame has a palette of its own, and pixels that have not changed are transparent.
 * The format: https://www.w3.org/Graphics/GIF/spec-gif89a.txt
 */

import { paletteOf, placeOf } from "./png.ts";

const COLOURS = 256;
const TRANSPARENT = COLOURS - 1;
const MOST_CODES = 4096;
const CENTISECOND = 10; // ms

export class GifWriter {
  #parts: Uint8Array<ArrayBuffer>[] = [];
  /** The pixels of the frame before. */
  #before: Uint32Array | null = null;
  width: number;
  height: number;

  constructor(width: number, height: number) {
    this.width = width;
    this.height = height;
    this.#parts.push(
      new TextEncoder().encode("GIF89a"),
      words(width, height),
      new Uint8Array([0x70, 0, 0]), // no common palette
      new Uint8Array([0x21, 0xff, 11]),
      new TextEncoder().encode("NETSCAPE2.0"),
      new Uint8Array([3, 1, 0, 0, 0]), // repeats for ever
    );
  }

  /** Adds a frame, an ImageData of opaque pixels, that is shown for some milliseconds. */
  add({ data }: ImageData, milliseconds: number) {
    const { palette, places } = paletteOf(data, TRANSPARENT);
    const colours = new Uint8Array(3 * COLOURS);
    colours.set(palette);
    const pixels = new Uint32Array(data.buffer, data.byteOffset, data.length / 4);
    const before = this.#before;
    const indexes = new Uint8Array(pixels.length);
    for (let i = 0; i < pixels.length; i += 1)
      indexes[i] = before && pixels[i] === before[i] ? TRANSPARENT : places[placeOf(data, 4 * i)];
    this.#before = pixels.slice();
    const delay = Math.round(milliseconds / CENTISECOND);
    this.#parts.push(
      // Leave the frame in place; index 255 is transparent.
      new Uint8Array([0x21, 0xf9, 4, 0b101, delay & 0xff, delay >> 8, TRANSPARENT, 0]),
      new Uint8Array([0x2c]),
      words(0, 0, this.width, this.height),
      new Uint8Array([0x87]), // a palette of 256 colours follows
      colours,
      new Uint8Array([8]),
      ...blocks(compress(indexes)),
    );
  }

  /** The file. */
  blob() {
    return new Blob([...this.#parts, new Uint8Array([0x3b])], { type: "image/gif" });
  }
}

/** 16-bit numbers, the lower byte first. */
const words = (...numbers: number[]) => new Uint8Array(numbers.flatMap((n) => [n & 0xff, n >> 8]));

/** LZW of indexes of 8 bits, with codes of 9 to 12 bits. */
export function compress(indexes: Uint8Array) {
  const clear = COLOURS;
  const end = clear + 1;
  const out: number[] = [];
  let [held, bits] = [0, 0];
  let size = 9;
  let next = end + 1;
  let codes = new Map();
  const write = (code: number) => {
    held |= code << bits;
    bits += size;
    for (; bits >= 8; bits -= 8) {
      out.push(held & 0xff);
      held >>>= 8;
    }
  };
  write(clear);
  let prefix = indexes[0];
  for (let i = 1; i < indexes.length; i += 1) {
    const index = indexes[i];
    const key = (prefix << 8) | index;
    const known = codes.get(key);
    if (known !== undefined) {
      prefix = known;
      continue;
    }
    write(prefix);
    if (next < MOST_CODES) {
      if (next === 1 << size) size += 1;
      codes.set(key, next);
      next += 1;
    } else {
      write(clear);
      codes = new Map();
      [size, next] = [9, end + 1];
    }
    prefix = index;
  }
  write(prefix);
  if (next === 1 << size && size < 12) size += 1;
  write(end);
  if (bits) out.push(held & 0xff);
  return new Uint8Array(out);
}

/** The bytes in blocks of at most 255, each after its length. */
function blocks(bytes: Uint8Array<ArrayBuffer>) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 255) {
    const block = bytes.subarray(at, at + 255);
    parts.push(new Uint8Array([block.length]), block);
  }
  return [...parts, new Uint8Array([0])];
}
