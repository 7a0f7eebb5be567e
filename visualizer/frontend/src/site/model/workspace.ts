/**
 * The memory that the matrix product works in: the weights first, then the numbers of one step. WebAssembly code sees this
 * memory only, and JavaScript sees the same numbers through typed arrays.
 */

import product from "./matmul.wat";
import type { Tensor } from "./safetensors.ts";

/** numbers in the workspace, row by row */
export interface Matrix {
  at: number; // address of the first one
  rows: number; // a multiple of 4
  columns: number; // a multiple of 4
}

type Product = (
  out: number,
  matrix: number,
  x: number,
  tokens: number,
  rows: number,
  columns: number,
) => void;

const PAGE = 65_536; // WebAssembly memory grows by pages of this many bytes
const FLOAT = 4;

export class Workspace {
  #memory = new WebAssembly.Memory({ initial: 1 });
  #kept = 0;
  #multiply: Product;

  constructor() {
    const imports = { workspace: { memory: this.#memory } };
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(product), imports);
    this.#multiply = exports.multiply as Product;
  }

  /** Stores a matrix for good. */
  keep({ shape: [rows, columns], values }: Tensor): Matrix {
    if (rows % 4 || columns % 4)
      throw new Error(`a matrix of ${rows} x ${columns}: both sizes must be multiples of 4`);
    const at = this.#kept;
    this.#grow(at + values.byteLength);
    new Float32Array(this.#memory.buffer, at).set(values);
    this.#kept += values.byteLength;
    return { at, rows, columns };
  }

  /** Returns arrays for one step, behind the weights. The next call overwrites them, and they may hold any numbers. */
  arrays<Name extends string>(lengths: Record<Name, number>): Record<Name, Float32Array> {
    const sizes = Object.entries(lengths) as [Name, number][];
    // All at once: arrays from before the memory grows cannot be used after it.
    this.#grow(sizes.reduce((end, [, length]) => end + length * FLOAT, this.#kept));
    const arrays = {} as Record<Name, Float32Array>;
    let at = this.#kept;
    for (const [name, length] of sizes) {
      arrays[name] = new Float32Array(this.#memory.buffer, at, length);
      at += length * FLOAT;
    }
    return arrays;
  }

  /** Returns a row of a kept matrix. */
  row({ at, columns }: Matrix, index: number) {
    return new Float32Array(this.#memory.buffer, at + index * columns * FLOAT, columns);
  }

  /** Multiplies a matrix with each token's vector: out[t] = matrix x[t]. `out` and `x` are arrays of this workspace. */
  multiply(out: Float32Array, { at, rows, columns }: Matrix, x: Float32Array, tokens: number) {
    this.#multiply(out.byteOffset, at, x.byteOffset, tokens, rows, columns);
  }

  #grow(bytes: number) {
    const missing = bytes - this.#memory.buffer.byteLength;
    if (missing > 0) this.#memory.grow(Math.ceil(missing / PAGE));
  }
}
