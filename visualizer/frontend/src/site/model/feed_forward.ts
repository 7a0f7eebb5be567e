/**
 * The feed-forward network of a layer: each token by itself, y = down(silu(gate(x)) * up(x)).
 * Source: GLU Variants Improve Transformer, arXiv:2002.05202 (SwiGLU).
 */

/** Multiplies the gate, after its activation x / (1 + e^-x), into `gate` in place. */
export function swiglu(gate: Float32Array, up: Float32Array) {
  for (let i = 0; i < gate.length; i += 1) gate[i] = (gate[i] / (1 + Math.exp(-gate[i]))) * up[i];
}
