/** A column of the parts of an index, one after the other. */

import { Numbers } from "./columns.ts";
import { type Column, Lists } from "./indexed_events.ts";

export class Joined implements Column {
  /** The values; of lists, where each ends. */
  #numbers = new Numbers();
  /** Values that are no numbers. */
  #others: any[] = [];
  /** The lists of the last part. */
  #lists: Lists | null = null;
  #items: Joined | null = null;
  #columns: Joined[] = [];

  /** Adds the column of the next part, which has so many rows. */
  add(column: Column, count: number) {
    const { length } = this.#numbers;
    if (column instanceof Lists) {
      this.#lists = column;
      const before = this.#end(length - 1);
      const ends = new Float64Array(count).fill(before);
      for (let row = 0; row < column.ends.length; row++) ends[row] += column.ends[row];
      this.#numbers.put(length, ends);
      this.#items ??= column.items && new Joined();
      if (column.items) this.#items?.add(column.items, ends[count - 1] - before);
    } else if (column.columns)
      column.columns.forEach((one, place) =>
        (this.#columns[place] ??= new Joined()).add(one, count),
      );
    else {
      const values: any[] = new Array(count);
      for (let row = 0; row < count; row++) values[row] = column.at(row);
      if (typeof values[0] === "number") this.#numbers.put(length, values);
      else this.#others.push(...values);
    }
  }

  at(row: number): any {
    if (this.#lists) return this.#lists.of(this.#end(row - 1), this.#end(row), this.#items);
    if (this.#columns.length) return this.#columns.map((column) => column.at(row));
    return this.#others.length ? this.#others[row] : this.#numbers.at(row);
  }

  #end(row: number) {
    return this.#numbers.at(row) || 0;
  }
}
