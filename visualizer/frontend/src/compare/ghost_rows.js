/**
 * The rows of the picture of two runs: one per request, with the ends in both runs and the gap between them. Pure
 * functions.
 *
 * @typedef {object} GhostRow
 * @property {RequestSpan | null} a  null: only B has the request
 * @property {RequestSpan | null} b
 * @property {[number, number]} ends  places on the axis; NaN for a request that has not ended
 * @property {number} gap    end in B minus end in A; NaN if it has ended in one of them at most
 * @property {"gap" | "noise" | "same" | "before" | "only" | "open"} state
 *   noise: too small to mean something; before: it ended before the fork; only: one run has it; open: it has not
 *   ended in both
 */

/** @import { Axis } from "../drawing/time_axis.js" */
/** @import { Model } from "../model/model.js" */
/** @import { RequestSpan } from "../model/request_spans.js" */
/** @import { Facts } from "./compare.js" */
import { duration } from "../model/duration.js";
import { partners } from "./alignment.js";

/** More requests do not fit on a laptop's screen. */
export const MOST_ROWS = 20;

const US_PER_MS = 1000;

/**
 * All rows in order of arrival in A, then those of B alone. `axes` has the axis of each run, `facts` the kernel's
 * comparison.
 *
 * @param {Model[]} models @param {Axis[]} axes @param {Facts} facts
 * @returns {GhostRow[]}
 */
export function ghostRows(models, axes, facts) {
  const [{ requests }, other] = models;
  const partnerOf = partners(facts);
  /** @type {Pick<GhostRow, "a" | "b">[]} */
  const known = requests.map((a) => ({ a, b: other.request(partnerOf(1, a.id)) ?? null }));
  const alone = facts.unmatched[1].flatMap((id) => other.request(id) ?? []);
  const pairs = [...known, ...alone.map((b) => ({ a: null, b }))];
  const fork = facts.difference?.step ?? Infinity;
  return pairs.map(({ a, b }) => {
    const ends = /** @type {GhostRow["ends"]} */ (
      [a, b].map((span, side) => (span?.finished ? axes[side].end(span.finished.step) : NaN))
    );
    const gap = ends[1] - ends[0];
    const isBefore = [a, b].every((span) => Number(span?.finished?.step) < fork);
    return { a, b, ends, gap, state: stateOf({ a, b, gap, isBefore }, axes, ends, facts) };
  });
}

/**
 * @param {Pick<GhostRow, "a" | "b" | "gap"> & {isBefore: boolean}} row @param {Axis[]} axes
 * @param {GhostRow["ends"]} ends @param {Facts} facts
 * @returns {GhostRow["state"]}
 */
function stateOf({ a, b, gap, isBefore }, [{ kind }], ends, { end_noise: noise }) {
  if (!a || !b) return "only";
  if (Number.isNaN(gap)) return "open";
  if (isBefore) return "before";
  if (gap === 0) return "same";
  return isNoise(ends, noise, kind) ? "noise" : "gap";
}

/**
 * Whether two ends are too close to tell apart. Steps are exact. `noise` as in `comparison.py`.
 *
 * @param {number[]} ends @param {Facts["end_noise"]} noise @param {Axis["kind"]} kind
 */
export function isNoise([a, b], { share, ms }, kind) {
  if (kind === "steps") return false;
  return share == null || Math.abs(b - a) <= share * Math.max(a, b) + ms * US_PER_MS;
}

/** The request of a row, of A if A has it. @param {GhostRow} row */
export const spanOf = ({ a, b }) => /** @type {RequestSpan} */ (a ?? b);

/**
 * The rows to draw: all of them, or the largest gaps first; and how many are left out.
 *
 * @param {GhostRow[]} rows @param {number} [most]
 */
export function shownRows(rows, most = MOST_ROWS) {
  if (rows.length <= most) return { shown: rows, left: 0 };
  /** @param {GhostRow} row */
  const size = ({ gap }) => Math.abs(gap) || 0;
  const sorted = rows.toSorted((one, other) => size(other) - size(one));
  return { shown: sorted.slice(0, most), left: rows.length - most };
}

/** "63 ms", "3 steps", "1 step": the size of a gap. @param {number} gap @param {Axis["kind"]} kind */
export function gapSize(gap, kind) {
  const size = Math.abs(gap);
  return kind === "time" ? duration(size) : `${size} step${size === 1 ? "" : "s"}`;
}

/**
 * What is at the right of a row. `names` are the runs'.
 *
 * @param {GhostRow} row @param {Axis["kind"]} kind @param {string[]} names
 */
export function gapWords({ a, gap, state }, kind, names) {
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
      const about = state === "noise" ? "~ " : "";
      return `${about}${gapSize(gap, kind)} ${gap < 0 ? "sooner" : "later"}`;
    }
  }
}
