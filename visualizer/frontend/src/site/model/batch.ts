/**
 * The work of one step: a flat batch of tokens from several texts. A row is a text's part of it: some tokens that follow each
 * other, of a prompt or the newest one of an output. Only attention cares which row a token belongs to.
 */

export interface Row {
  first: number; // index of its first token in the batch
  count: number; // number of its tokens in the batch
  start: number; // position of the first one in its text
  table: Int32Array; // the blocks that hold the text's keys and values
}

export interface Batch {
  ids: Int32Array; // [tokens]
  positions: Int32Array; // [tokens] each token's position in its own text
  rows: Row[];
  wanted: Int32Array; // indexes of the tokens whose logits are needed
}

/**
 * Builds a batch from flat arrays, which cross from Python to JavaScript fast.
 *
 * @param ids [tokens]
 * @param starts [rows]
 * @param counts [rows]
 * @param tables [rows, width] block tables, filled up to the same width
 */
export function makeBatch(
  ids: Int32Array,
  starts: Int32Array,
  counts: Int32Array,
  tables: Int32Array,
  wanted: Int32Array,
): Batch {
  const positions = new Int32Array(ids.length);
  const width = tables.length / starts.length;
  const rows: Row[] = [];
  let first = 0;
  starts.forEach((start, i) => {
    const count = counts[i];
    for (let j = 0; j < count; j += 1) positions[first + j] = start + j;
    rows.push({ first, count, start, table: tables.subarray(i * width, (i + 1) * width) });
    first += count;
  });
  return { ids, positions, rows, wanted };
}
