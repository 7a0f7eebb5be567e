/**
 * Rotary position embeddings: each pair of a head's values is rotated by an angle in proportion to the token's position. So
 * the product of a query and a key depends on how far apart they are. Value i of a head is paired with value i + size / 2.
 * Source: Su et al., RoFormer, arXiv:2104.09864.
 */

export class Rope {
  #cos;
  #sin;
  #half;

  /**
   * @param size values of a head
   * @param theta the base of the frequencies
   */
  constructor(size: number, theta: number, positions: number) {
    const half = (this.#half = size / 2);
    this.#cos = new Float32Array(positions * half);
    this.#sin = new Float32Array(positions * half);
    const { fround } = Math; // angles in float32, as the model was trained
    for (let i = 0; i < half; i += 1) {
      const frequency = fround(1 / fround(theta ** fround((2 * i) / size)));
      for (let position = 0; position < positions; position += 1) {
        const angle = fround(position * frequency);
        this.#cos[position * half + i] = Math.cos(angle);
        this.#sin[position * half + i] = Math.sin(angle);
      }
    }
  }

  /**
   * Rotates all heads of each token of `x` in place.
   *
   * @param x [tokens, heads, size]
   * @param positions [tokens]
   */
  rotate(x: Float32Array, positions: Int32Array, heads: number) {
    const half = this.#half;
    positions.forEach((position, token) => {
      const angle = position * half;
      for (let head = 0; head < heads; head += 1) {
        const start = (token * heads + head) * 2 * half;
        for (let i = start; i < start + half; i += 1) {
          const cos = this.#cos[angle + i - start];
          const sin = this.#sin[angle + i - start];
          const a = x[i];
          const b = x[i + half];
          x[i] = a * cos - b * sin;
          x[i + half] = b * cos + a * sin;
        }
      }
    });
  }
}
