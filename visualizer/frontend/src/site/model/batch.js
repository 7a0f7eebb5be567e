/**
 * The work of one step: a flat batch of tokens from several texts. A row is a text's part of it: some tokens that follow each
 * other, of a prompt or the newest one of an output. Only attention cares which row a token belongs to.
 *
 * @typedef {object} Row
 * @property {number} first  index of its first token in the batch
 * @property {number} count  number of its tokens in the batch
 * @property {number} start  position of the first one in its text
 * @property {Int32Array} table  the blocks that hold the text's keys and values
 *
 * @typedef {object} Batch
 * @property {Int32Array} ids  [tokens]
 * @property {Int32Array} positions  [tokens] each token's position in its own text
 * @property {Row[]} rows
 * @property {Int32Array} wanted  indexes of the tokens whose logits are needed
 */

/**
 * Builds a batch from flat arrays, which cross from Python to JavaScript fast.
 * @param {Int32Array} ids [tokens] @param {Int32Array} starts [rows] @param {Int32Array} counts [rows]
 * @param {Int32Array} tables [rows, width] block tables, filled up to the same width @param {Int32Array} wanted
 * @returns {Batch}
 */
export function makeBatch(ids, starts, counts, tables, wanted) {
  const positions = new Int32Array(ids.length);
  const width = tables.length / starts.length;
  /** @type {Row[]} */
  const rows = [];
  let first = 0;
  starts.forEach((start, i) => {
    const count = counts[i];
    for (let j = 0; j < count; j += 1) positions[first + j] = start + j;
    rows.push({ first, count, start, table: tables.subarray(i * width, (i + 1) * width) });
    first += count;
  });
  return { ids, positions, rows, wanted };
}
