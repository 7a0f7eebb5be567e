/**
 * The rows of the picture of two runs: one per request, with the ends in both runs and the gap between them. Pure
 * functions.
 */

import type { Axis } from "../drawing/time_axis.ts";
import { duration } from "../model/duration.ts";
import type { Model } from "../model/model.ts";
import type { RequestSpan } from "../model/request_spans.ts";
import { partners } from "./alignment.ts";
import type { Facts } from "./compare.ts";

export interface GhostRow {
  a: RequestSpan | null; // null: only B has the request
  b: RequestSpan | null;
  ends: [number, number]; // places on the axis; NaN for a request that has not ended
  gap: number; // end in B minus end in A; NaN if it has ended in one of them at most
  /**
   * noise: too small to mean something; unknown: it is unknown how much times vary; before: it ended before the fork; only: one run has it; open: it has not
   * ended in both
   */
  state: "gap" | "noise" | "unknown" | "same" | "before" | "only" | "open";
}

/** More requests do not fit on a laptop's screen. */
export const MOST_ROWS = 20;

const US_PER_MS = 1000;

/**
 * All rows in order of arrival in A, then those of B alone. `axes` has the axis of each run, `facts` the kernel's
 * comparison.
 */
export function ghostRows(models: Model[], axes: Axis[], facts: Facts): GhostRow[] {
  const [{ requests }, other] = models;
  const partnerOf = partners(facts);
  const known: Pick<GhostRow, "a" | "b">[] = requests.map((a) => ({
    a,
    b: other.request(partnerOf(1, a.id)) ?? null,
  }));
  const alone = facts.unmatched[1].flatMap((id) => other.request(id) ?? []);
  const pairs = [...known, ...alone.map((b) => ({ a: null, b }))];
  const fork = facts.difference?.step ?? -Infinity;
  return pairs.map(({ a, b }) => {
    const ends = [a, b].map((span, side) =>
      span?.finished ? axes[side].end(span.finished.step) : NaN,
    ) as GhostRow["ends"];
    const gap = ends[1] - ends[0];
    const isBefore = [a, b].every((span) => Number(span?.finished?.step) < fork);
    return { a, b, ends, gap, state: stateOf({ a, b, gap, isBefore }, axes, ends, facts) };
  });
}

function stateOf(
  { a, b, gap, isBefore }: Pick<GhostRow, "a" | "b" | "gap"> & { isBefore: boolean },
  [{ kind }]: Axis[],
  ends: GhostRow["ends"],
  { end_noise: noise }: Facts,
): GhostRow["state"] {
  if (!a || !b) return "only";
  if (Number.isNaN(gap)) return "open";
  if (isBefore) return "before";
  if (gap === 0) return "same";
  return doubtOf(ends, noise, kind) ?? "gap";
}

/**
 * Why the gap between two ends may mean nothing: they are too close to tell apart, or it is unknown how much times vary.
 * Null if it means something; steps are exact. `noise` as in `comparison.py`.
 */
export function doubtOf([a, b]: number[], { share, ms }: Facts["end_noise"], kind: Axis["kind"]) {
  if (kind === "steps") return null;
  if (share == null) return "unknown";
  return Math.abs(b - a) <= share * Math.max(a, b) + ms * US_PER_MS ? "noise" : null;
}

/** The request of a row, of A if A has it. */
export const spanOf = ({ a, b }: GhostRow) => (a ?? b) as RequestSpan;

/** The rows to draw: all of them, or the largest gaps first; and how many are left out. */
export function shownRows(rows: GhostRow[], most: number = MOST_ROWS) {
  if (rows.length <= most) return { shown: rows, left: 0 };
  const size = ({ gap }: GhostRow) => Math.abs(gap) || 0;
  const sorted = rows.toSorted((one, other) => size(other) - size(one));
  return { shown: sorted.slice(0, most), left: rows.length - most };
}

/** "63 ms", "3 steps", "1 step": the size of a gap. */
export function gapSize(gap: number, kind: Axis["kind"]) {
  const size = Math.abs(gap);
  return kind === "time" ? duration(size) : `${size} step${size === 1 ? "" : "s"}`;
}

/** What is at the right of a row. `names` are the runs'. */
export function gapWords({ a, gap, state }: GhostRow, kind: Axis["kind"], names: string[]) {
  switch (state) {
    case "only":
      return `only in ${names[a ? 0 : 1]}`;
    case "open":
      return "not ended";
    case "before":
      return "before the fork";
    case "same":
      return "the same";
    default: {
      const about = { noise: "~ ", unknown: "? " }[state as string] ?? "";
      return `${about}${gapSize(gap, kind)} ${gap < 0 ? "sooner" : "later"}`;
    }
  }
}
