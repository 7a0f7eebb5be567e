/**
 * Reads a safetensors file: eight bytes with the size of a header, the header (JSON with each tensor's type, shape and
 * place), then the numbers.
 */

type Entry = { dtype: string; shape: number[]; data_offsets: [number, number] };

export type Tensor = { shape: number[]; values: Float32Array };

/** Reads all tensors of a file, as float32. */
export function readSafetensors(file: ArrayBuffer): Map<string, Tensor> {
  const size = Number(new DataView(file).getBigUint64(0, true));
  const header: Record<string, Entry> = JSON.parse(
    new TextDecoder().decode(new Uint8Array(file, 8, size)),
  );
  const start = 8 + size;
  const tensors = new Map();
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const decode = DECODERS[dtype];
    if (!decode) throw new Error(`${name} has dtype ${dtype}; save the weights as F16 or F32`);
    const [from, to] = data_offsets;
    // A copy, because a typed array must begin at a multiple of its numbers' size.
    tensors.set(name, { shape, values: decode(file.slice(start + from, start + to)) });
  }
  return tensors;
}

const DECODERS: Record<string, (bytes: ArrayBuffer) => Float32Array> = {
  F32: (bytes) => new Float32Array(bytes),
  F16: (bytes) => {
    const halves = new Uint16Array(bytes);
    const values = new Float32Array(halves.length);
    for (let i = 0; i < halves.length; i += 1) values[i] = HALF[halves[i]];
    return values;
  },
};

/** The value of each of the 65,536 float16 numbers: a sign, 5 bits of exponent, 10 bits of fraction. */
const HALF = Float32Array.from({ length: 1 << 16 }, (_, bits) => {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = (bits & 0x3ff) / 1024;
  if (exponent === 0) return sign * fraction * 2 ** -14; // close to 0, without the leading 1
  if (exponent === 0x1f) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction) * 2 ** (exponent - 15);
});
