/**
 * KV memory: the keys and values of every computed token, in blocks of a few tokens. A text's block table says which blocks
 * hold it, so it need not lie in one piece. The numbers of a block lie together, as one page:
 *
 *     [blocks][layers][block size][2 (keys, values)][KV heads][head size]
 */

/** KV heads, and the values of one head */
type Shape = { layers: number; heads: number; size: number };

export class KVCache {
  #numbers;
  #shape;
  #token; // numbers of a token in a layer
  #page; // numbers of a block
  blockSize: number;

  /** @param blockSize tokens in a block */
  constructor(shape: Shape, blocks: number, blockSize: number) {
    this.#shape = shape;
    this.blockSize = blockSize;
    this.#token = 2 * shape.heads * shape.size;
    this.#page = shape.layers * blockSize * this.#token;
    this.#numbers = new Float32Array(blocks * this.#page);
  }

  /** Copies a block, in all layers. */
  copy(from: number, to: number) {
    this.write(to, this.read(from));
  }

  /** Returns the numbers of a block: a page. */
  read(block: number) {
    return this.#numbers.subarray(block * this.#page, (block + 1) * this.#page);
  }

  write(block: number, page: Float32Array) {
    if (page.length !== this.#page)
      throw new Error(`a page has ${this.#page} numbers, got ${page.length}`);
    this.#numbers.set(page, block * this.#page);
  }

  /**
   * Stores the keys and values of the token at a position: [KV heads, head size] each.
   *
   * @param table the text's blocks
   */
  store(
    layer: number,
    table: Int32Array,
    position: number,
    keys: Float32Array,
    values: Float32Array,
  ) {
    const at = this.#place(layer, table, position);
    this.#numbers.set(keys, at);
    this.#numbers.set(values, at + keys.length);
  }

  /**
   * Collects one head's keys and values of the positions before `end`, following the block table.
   *
   * @param keys [positions, head size]
   * @param values [head size, width]: a row for each number of the head; 0 from `end` on
   */
  gather(
    layer: number,
    head: number,
    table: Int32Array,
    end: number,
    keys: Float32Array,
    values: Float32Array,
    width: number,
  ) {
    const { heads, size } = this.#shape;
    const numbers = this.#numbers;
    for (let position = 0; position < end; position += 1) {
      const key = this.#place(layer, table, position) + head * size;
      const value = key + heads * size;
      for (let i = 0; i < size; i += 1) {
        keys[position * size + i] = numbers[key + i];
        values[i * width + position] = numbers[value + i];
      }
    }
    for (let i = 0; i < size; i += 1) values.fill(0, i * width + end, (i + 1) * width);
  }

  #place(layer: number, table: Int32Array, position: number) {
    const slot = position % this.blockSize;
    const block = table[(position - slot) / this.blockSize];
    return block * this.#page + (layer * this.blockSize + slot) * this.#token;
  }
}
