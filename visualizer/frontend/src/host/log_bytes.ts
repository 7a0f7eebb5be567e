/** The bytes of a log, plain or gzipped, in pieces, so that a long log is drawn before all of it is unpacked. */

const SLICE = 1 << 16;

/** A Uint8Array of the view or buffer that the host provides. */
export function asBytes(data: ArrayBuffer | ArrayBufferView): Uint8Array<ArrayBuffer> {
  if (data instanceof Uint8Array) return data as Uint8Array<ArrayBuffer>;
  if (ArrayBuffer.isView(data))
    return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
  return new Uint8Array(data);
}

/** The bytes of base64 text. */
export const fromBase64 = (text = "") =>
  Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** The bytes of a log that is given as bytes or in base64. */
export const bytesOf = (log: string | ArrayBufferView) =>
  typeof log === "string" ? fromBase64(log) : log;

/** The bytes of a file of this site. */
export async function fetchBytes(url: string) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return new Uint8Array(await answer.arrayBuffer());
}

/** The beginning of a log, unpacked; empty if it cannot be unpacked, which its reader reports. */
export async function headOf(log: ArrayBuffer | ArrayBufferView) {
  try {
    for await (const { bytes } of piecesOf(log))
      return new TextDecoder().decode(bytes.subarray(0, 200));
  } catch {
    // damaged
  }
  return "";
}

/** The unpacked bytes of a log as `{bytes, share}`: share is the part that has been consumed, from 0 to 1. */
export async function* piecesOf(
  data: ArrayBuffer | ArrayBufferView,
): AsyncGenerator<{ bytes: Uint8Array; share: number }> {
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
