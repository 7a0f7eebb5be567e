/**
 * Microseconds in words: "35.1 s", "120 ms", with three significant digits; from 1000 s on "2 h 5 min 9 s".
 * `visualizer/reading/durations.py` writes the same.
 */
export function duration(us: number) {
  const milliseconds = threeDigits(us / 1000);
  if (milliseconds < 1000) return `${milliseconds} ms`;
  const seconds = Math.round(us / 1e6);
  if (seconds < 1000) return `${threeDigits(us / 1e6)} s`;
  const minutes = (seconds / 60) | 0;
  return `${minutes < 60 ? "" : `${(minutes / 60) | 0} h `}${minutes % 60} min ${seconds % 60} s`;
}

const threeDigits = (value: number) => Number(value.toPrecision(3));
