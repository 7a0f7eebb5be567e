/** Typed arrays that grow, for one number per event or step. */

/**
 * The array itself if it is long enough, else a longer one with the same beginning.
 *
 * @template {Int32Array | Uint32Array | Uint8Array | Float64Array} T
 * @param {T} column
 * @param {number} length  the least length
 * @returns {T}
 */
export function roomFor(column, length) {
  if (length <= column.length) return column;
  const longer = new /** @type {any} */ (column.constructor)(2 * length);
  longer.set(column);
  return longer;
}
