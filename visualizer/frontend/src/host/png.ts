/**
 * A PNG encoder with a palette of 256 colours. A browser's own encoder writes a file four times as large.
 * The format: https://www.w3.org/TR/png-3/
 */

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];
const PALETTE = 256;

/** The bytes of a PNG of opaque pixels, an ImageData. */
export async function pngOf({ data, width, height }: ImageData) {
  const { palette, places } = paletteOf(data);
  const rows = new Uint8Array((width + 1) * height); // each begins with its filter type: 0, none
  for (let y = 0, pixel = 0; y < height; y++)
    for (let x = 0; x < width; x++, pixel++)
      rows[y * (width + 1) + x + 1] = places[placeOf(data, 4 * pixel)];
  const header = new DataView(new ArrayBuffer(13));
  header.setUint32(0, width);
  header.setUint32(4, height);
  header.setUint16(8, 0x0803); // 8 bits per pixel, with a palette
  const packed = new Blob([rows]).stream().pipeThrough(new CompressionStream("deflate"));
  const chunks = [
    chunk("IHDR", new Uint8Array(header.buffer)),
    chunk("PLTE", palette),
    chunk("IDAT", new Uint8Array(await new Response(packed).arrayBuffer())),
    chunk("IEND", new Uint8Array()),
  ];
  return new Uint8Array(await new Blob([new Uint8Array(SIGNATURE), ...chunks]).arrayBuffer());
}

/** The group of similar colours of a pixel, one of 4,096: 4 bits of each channel. */
export const placeOf = (data: ArrayLike<number>, at: number) =>
  ((data[at] & 0xf0) << 4) | (data[at + 1] & 0xf0) | (data[at + 2] >> 4);

/**
 * The palette of at most `size` colours, and the index in it of each group. A group gets its most frequent colour, so areas keep their exact
 * colour and only the antialiased edges of letters change. Rare groups get the nearest colour.
 */
export function paletteOf(data: Uint8ClampedArray, size: number = PALETTE) {
  const colours: Map<number, number> = new Map();
  for (let at = 0, end = 0; at < data.length; at = end) {
    // Most pixels are like the one before.
    for (end = at + 4; end < data.length && isSame(data, at, end); ) end += 4;
    const colour = (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    colours.set(colour, (colours.get(colour) ?? 0) + (end - at) / 4);
  }
  const groups: Map<number, { bucket: number; total: number; most: number; rgb: number[] }> =
    new Map();
  for (const [colour, count] of colours) {
    const rgb = [colour >> 16, (colour >> 8) & 0xff, colour & 0xff];
    const bucket = placeOf(rgb, 0);
    const group = groups.get(bucket) ?? { bucket, total: 0, most: 0, rgb };
    group.total += count;
    if (count > group.most) Object.assign(group, { most: count, rgb });
    groups.set(bucket, group);
  }
  const sorted = [...groups.values()].sort((a, b) => b.total - a.total || a.bucket - b.bucket);
  const chosen = sorted.slice(0, size).map(({ rgb }) => rgb);
  const places = new Uint8Array(4096);
  sorted.forEach(({ bucket, rgb }, i) => (places[bucket] = i < size ? i : nearest(chosen, rgb)));
  return { palette: new Uint8Array(chosen.flat()), places };
}

const isSame = (data: Uint8ClampedArray, a: number, b: number) =>
  data[a] === data[b] && data[a + 1] === data[b + 1] && data[a + 2] === data[b + 2];

function nearest(palette: number[][], rgb: number[]) {
  const far = palette.map((one) => one.reduce((sum, part, i) => sum + (part - rgb[i]) ** 2, 0));
  return far.indexOf(Math.min(...far));
}

function chunk(name: string, data: Uint8Array) {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(
    [...name].map((letter) => letter.charCodeAt(0)),
    4,
  );
  bytes.set(data, 8);
  view.setUint32(data.length + 8, crc(bytes.subarray(4, data.length + 8)));
  return bytes;
}

/** CRC-32, bit by bit. */
function crc(bytes: Uint8Array) {
  let sum = -1;
  for (const byte of bytes) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum;
}
