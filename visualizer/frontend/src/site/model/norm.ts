/**
 * RMSNorm keeps the numbers of a vector in a range that the next layer can work with: x / sqrt(mean(x^2) + eps) * weight.
 * Source: Zhang and Sennrich, arXiv:1910.07467.
 */

/** Normalises each vector of `x` into `out`, which may be the same array. A vector is as long as `weight`. */
export function norm(out: Float32Array, x: Float32Array, weight: Float32Array, eps: number) {
  const size = weight.length;
  for (let start = 0; start < x.length; start += size) {
    let squares = 0;
    for (let i = 0; i < size; i += 1) squares += x[start + i] * x[start + i];
    const factor = 1 / Math.sqrt(squares / size + eps);
    for (let i = 0; i < size; i += 1) out[start + i] = x[start + i] * factor * weight[i];
  }
}
