/** Typed arrays that grow, for one number per event or step. */

/**
 * The array itself if it is long enough, else a longer one with the same beginning.
 *
 * @param length the least length
 */
export function roomFor<T extends Int32Array | Uint32Array | Uint8Array | Float64Array>(
  column: T,
  length: number,
): T {
  if (length <= column.length) return column;
  const longer = new (column.constructor as any)(2 * length);
  longer.set(column);
  return longer;
}
