/** Typed arrays that grow, for one number per event or step, and the search in what is sorted. */

/**
 * The array itself if it is long enough, else a longer one with the same beginning.
 *
 * @param length the least length
 * @param all the length that it will have in the end, if that is known
 */
export function roomFor<T extends Int32Array | Uint32Array | Uint8Array | Float64Array>(
  column: T,
  length: number,
  all = 0,
): T {
  if (length <= column.length) return column;
  const longer = new (column.constructor as any)(length <= all ? all : 2 * length);
  longer.set(column);
  return longer;
}

/** The first index from which on a condition holds, up to `length`, where it holds for none. */
export function firstWhere(length: number, holds: (index: number) => boolean) {
  let low = 0;
  for (let high = length; low < high; ) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
