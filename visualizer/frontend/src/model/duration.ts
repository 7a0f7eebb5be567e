/**
 * Microseconds in words: "35.1 s", "120 ms". Three significant digits; from 1000 s on, whole seconds.
 * `visualizer/reading/durations.py` writes the same.
 */
export function duration(us: number) {
  const milliseconds = threeDigits(us / 1000);
  if (Math.abs(milliseconds) < 1000) return `${milliseconds} ms`;
  const seconds = us / 1e6;
  const shown = Math.abs(seconds) < 1000 ? threeDigits(seconds) : Math.round(seconds);
  return `${shown.toLocaleString("en")} s`;
}

const threeDigits = (value: number) => Number(value.toPrecision(3));
