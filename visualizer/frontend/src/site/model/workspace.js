/**
 * The memory that the matrix product works in: the weights first, then the numbers of one step. WebAssembly code sees this
 * memory only, and JavaScript sees the same numbers through typed arrays.
 *
 * @typedef {object} Matrix  numbers in the workspace, row by row
 * @property {number} at  address of the first one
 * @property {number} rows  a multiple of 4
 * @property {number} columns  a multiple of 4
 *
 * @typedef {(out: number, matrix: number, x: number, tokens: number, rows: number, columns: number) => void} Product
 */

import product from "./matmul.wat";

const PAGE = 65_536; // WebAssembly memory grows by pages of this many bytes
const FLOAT = 4;

export class Workspace {
  #memory = new WebAssembly.Memory({ initial: 1 });
  #kept = 0;
  /** @type {Product} */
  #multiply;

  constructor() {
    const imports = { workspace: { memory: this.#memory } };
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(product), imports);
    this.#multiply = /** @type {Product} */ (exports.multiply);
  }

  /** Stores a matrix for good. @param {import("./safetensors.js").Tensor} tensor @returns {Matrix} */
  keep({ shape: [rows, columns], values }) {
    if (rows % 4 || columns % 4)
      throw new Error(`a matrix of ${rows} x ${columns}: both sizes must be multiples of 4`);
    const at = this.#kept;
    this.#grow(at + values.byteLength);
    new Float32Array(this.#memory.buffer, at).set(values);
    this.#kept += values.byteLength;
    return { at, rows, columns };
  }

  /**
   * Returns arrays for one step, behind the weights. The next call overwrites them, and they may hold any numbers.
   * @template {string} Name @param {Record<Name, number>} lengths @returns {Record<Name, Float32Array>}
   */
  arrays(lengths) {
    const sizes = /** @type {[Name, number][]} */ (Object.entries(lengths));
    // All at once: arrays from before the memory grows cannot be used after it.
    this.#grow(sizes.reduce((end, [, length]) => end + length * FLOAT, this.#kept));
    const arrays = /** @type {Record<Name, Float32Array>} */ ({});
    let at = this.#kept;
    for (const [name, length] of sizes) {
      arrays[name] = new Float32Array(this.#memory.buffer, at, length);
      at += length * FLOAT;
    }
    return arrays;
  }

  /** Returns a row of a kept matrix. @param {Matrix} matrix @param {number} index */
  row({ at, columns }, index) {
    return new Float32Array(this.#memory.buffer, at + index * columns * FLOAT, columns);
  }

  /**
   * Multiplies a matrix with each token's vector: out[t] = matrix x[t]. `out` and `x` are arrays of this workspace.
   * @param {Float32Array} out @param {Matrix} matrix @param {Float32Array} x @param {number} tokens
   */
  multiply(out, { at, rows, columns }, x, tokens) {
    this.#multiply(out.byteOffset, at, x.byteOffset, tokens, rows, columns);
  }

  /** @param {number} bytes */
  #grow(bytes) {
    const missing = bytes - this.#memory.buffer.byteLength;
    if (missing > 0) this.#memory.grow(Math.ceil(missing / PAGE));
  }
}
