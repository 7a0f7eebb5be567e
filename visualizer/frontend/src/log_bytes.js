/** A log's bytes, plain or gzipped, as text; in slices, so that a long one can say how far it is. */

const SLICE = 1 << 20;

/** Uint8Array of whatever view or buffer the host hands over. */
export function asBytes(data) {
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data))
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new Uint8Array(data);
}

/** The text of a log. `progress` hears fractions from 0 to 1. */
export async function textOf(data, progress = () => {}) {
  const bytes = asBytes(data);
  const gzipped = bytes[0] === 0x1f && bytes[1] === 0x8b;
  let read = 0;
  const slices = new ReadableStream({
    pull(controller) {
      if (read >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(read, (read += SLICE)));
      return progress(Math.min(1, read / bytes.length));
    },
  });
  const stream = gzipped ? slices.pipeThrough(new DecompressionStream("gzip")) : slices;
  return new Response(stream).text();
}
