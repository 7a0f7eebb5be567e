/** A log's bytes, plain or gzipped, piece by piece: a long one is drawn before its end is unpacked. */

const SLICE = 1 << 16;

/** Uint8Array of whatever view or buffer the host hands over. */
export function asBytes(data) {
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data))
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new Uint8Array(data);
}

/** The bytes that base64 text stands for; none where a notebook was saved before logs were text. */
export function fromBase64(text) {
  const letters = typeof text === "string" ? atob(text) : "";
  return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
}

/** The unpacked bytes of a log as `{bytes, share}`: share is how much of it, from 0 to 1, was taken in. */
export async function* piecesOf(data) {
  const bytes = asBytes(data);
  let read = 0;
  const slices = new ReadableStream({
    pull(controller) {
      if (read >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(read, (read += SLICE)));
    },
  });
  const gzipped = bytes[0] === 0x1f && bytes[1] === 0x8b;
  const stream = gzipped ? slices.pipeThrough(new DecompressionStream("gzip")) : slices;
  const reader = stream.getReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield { bytes: value, share: Math.min(1, read / bytes.length) };
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
