import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32, inflateSync } from "node:zlib";

import { pngOf } from "../src/host/png.ts";

/** The chunks of a PNG by name; each one's checksum is right. */
function chunksOf(png) {
  const bytes = Buffer.from(png);
  assert.equal(bytes.subarray(1, 4).toString(), "PNG");
  const chunks = {};
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    const named = bytes.subarray(at + 4, at + 8 + length);
    assert.equal(bytes.readUInt32BE(at + 8 + length), crc32(named));
    chunks[named.subarray(0, 4).toString()] = named.subarray(4);
    at += length + 12;
  }
  return chunks;
}

/** The pixels of such a PNG as [r, g, b], row by row. */
function pixelsOf(png) {
  const { IHDR, PLTE, IDAT } = chunksOf(png);
  const [width, height] = [IHDR.readUInt32BE(0), IHDR.readUInt32BE(4)];
  const rows = inflateSync(IDAT);
  assert.equal(rows.length, (width + 1) * height);
  const rgb = (i) => [...PLTE.subarray(3 * i, 3 * i + 3)];
  return [...rows].filter((_, at) => at % (width + 1)).map(rgb);
}

const imageOf = (width, colours) => ({
  width,
  height: colours.length / width,
  data: Uint8ClampedArray.from(colours.flatMap((rgb) => [...rgb, 255])),
});

test("few colours are kept exactly, and those of areas also among similar shades", async () => {
  const [white, blue, shade, red] = [
    [255, 255, 255],
    [41, 62, 193],
    [40, 61, 192],
    [222, 52, 96],
  ];
  const colours = [white, white, blue, blue, shade, red, white, blue];
  const kept = [white, white, blue, blue, blue, red, white, blue];
  assert.deepEqual(pixelsOf(await pngOf(imageOf(4, colours))), kept);
});

test("rare groups beyond the size of the palette get the nearest colour", async () => {
  const grey = (i) => [16 * (i >> 8), 16 * ((i >> 4) & 15), 16 * (i & 15)];
  const often = Array.from({ length: 300 }, (_, i) => grey(i));
  const colours = [...often, ...often.slice(0, 256)];
  const pixels = pixelsOf(await pngOf(imageOf(4, colours)));
  assert.deepEqual(pixels.slice(0, 256), colours.slice(0, 256));
  assert.deepEqual(pixels[256], [0, 0, 0]);
});
