/**
 * The clock of lessons that run while the site is built. It counts what their work cost on one laptop, whatever else
 * the building machine does, so that two builds are equal. Importing it replaces the clocks and the timers.
 *
 * Time passes with each look at the clock, with each step of the model (`pass`), and when nothing is left to do but to
 * wait for a timer.
 */

const DAY = Date.UTC(2026, 0, 1);
const LOOK_MS = 0.02; // the engine looks at the clock several times a step, so this is the cost of its own work

let now = 0;
performance.now = () => {
  now += LOOK_MS;
  return now;
};
Date.now = () => DAY + Math.floor(now);

/** Lets the time pass. @param {number} ms */
export const pass = (ms) => {
  now += ms;
};

/** @type {{at: number, call: () => void}[]} timers by time, equal times in the order in which they were set */
const timers = [];
const soon = globalThis.setImmediate;
let turns = 0; // what the event loop does before it waits
let looks = false;

/** @param {() => void} call */
globalThis.setImmediate = /** @type {any} */ (
  (/** @type {(...args: any[]) => void} */ call, /** @type {any[]} */ ...args) => {
    turns += 1;
    return soon(() => {
      turns -= 1;
      call(...args);
    });
  }
);

globalThis.setTimeout = /** @type {any} */ (
  (/** @type {(...args: any[]) => void} */ call, ms = 0, /** @type {any[]} */ ...args) => {
    const timer = { at: now + Math.max(0, ms), call: () => call(...args) };
    const later = timers.findIndex(({ at }) => at > timer.at);
    timers.splice(later < 0 ? timers.length : later, 0, timer);
    look();
    return timer;
  }
);

globalThis.clearTimeout = /** @type {any} */ (
  (/** @type {{at: number, call: () => void}} */ timer) => {
    const at = timers.indexOf(timer);
    if (at >= 0) timers.splice(at, 1);
  }
);

/** Starts again for another lesson, without the timers of the one before. */
export function restart() {
  now = 0;
  timers.length = 0;
}

function look() {
  if (looks || !timers.length) return;
  looks = true;
  soon(() => {
    looks = false;
    if (timers.length && (timers[0].at <= now || !turns)) {
      const timer = /** @type {(typeof timers)[0]} */ (timers.shift());
      now = Math.max(now, timer.at);
      timer.call();
    }
    look();
  });
}
