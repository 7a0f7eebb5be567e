/**
 * KV memory: the keys and values of every computed token, in blocks of a few tokens. A text's block table says which blocks
 * hold it, so it need not lie in one piece. The numbers of a block lie together, as one page:
 *
 *     [blocks][layers][block size][2 (keys, values)][KV heads][head size]
 *
 * @typedef {{ layers: number, heads: number, size: number }} Shape  KV heads, and the values of one head
 */

export class KVCache {
  #numbers;
  #shape;
  #token; // numbers of a token in a layer
  #page; // numbers of a block

  /** @param {Shape} shape @param {number} blocks @param {number} blockSize tokens in a block */
  constructor(shape, blocks, blockSize) {
    this.#shape = shape;
    this.blockSize = blockSize;
    this.#token = 2 * shape.heads * shape.size;
    this.#page = shape.layers * blockSize * this.#token;
    this.#numbers = new Float32Array(blocks * this.#page);
  }

  get bytes() {
    return this.#numbers.byteLength;
  }

  /** Copies a block, in all layers. @param {number} from @param {number} to */
  copy(from, to) {
    this.write(to, this.read(from));
  }

  /** Returns the numbers of a block: a page. @param {number} block */
  read(block) {
    return this.#numbers.subarray(block * this.#page, (block + 1) * this.#page);
  }

  /** @param {number} block @param {Float32Array} page */
  write(block, page) {
    if (page.length !== this.#page)
      throw new Error(`a page has ${this.#page} numbers, got ${page.length}`);
    this.#numbers.set(page, block * this.#page);
  }

  /**
   * Stores the keys and values of the token at a position: [KV heads, head size] each.
   * @param {number} layer @param {Int32Array} table the text's blocks @param {number} position
   * @param {Float32Array} keys @param {Float32Array} values
   */
  store(layer, table, position, keys, values) {
    const at = this.#place(layer, table, position);
    this.#numbers.set(keys, at);
    this.#numbers.set(values, at + keys.length);
  }

  /**
   * Collects one head's keys and values of the positions before `end`, following the block table.
   * @param {number} layer @param {number} head @param {Int32Array} table @param {number} end
   * @param {Float32Array} keys [positions, head size]
   * @param {Float32Array} values [head size, width]: a row for each number of the head; 0 from `end` on
   * @param {number} width
   */
  gather(layer, head, table, end, keys, values, width) {
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

  /** @param {number} layer @param {Int32Array} table @param {number} position */
  #place(layer, table, position) {
    const slot = position % this.blockSize;
    const block = table[(position - slot) / this.blockSize];
    return block * this.#page + (layer * this.blockSize + slot) * this.#token;
  }
}
