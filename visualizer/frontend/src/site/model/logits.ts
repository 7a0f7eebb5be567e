/**
 * What greedy sampling needs of a row of logits: the likeliest token, and the logarithm of the sum of e^logit. A token's
 * log-probability is its logit minus that logarithm. Python does everything else (`page_model.py`).
 */

/** @param logits [rows, vocabulary] */
export function summarize(logits: Float32Array, vocabulary: number) {
  const rows = logits.length / vocabulary;
  const likeliest = new Int32Array(rows);
  const logSums = new Float64Array(rows);
  for (let row = 0; row < rows; row += 1) {
    const scores = logits.subarray(row * vocabulary, (row + 1) * vocabulary);
    let best = 0;
    for (let id = 1; id < vocabulary; id += 1) if (scores[id] > scores[best]) best = id;
    let sum = 0;
    for (let id = 0; id < vocabulary; id += 1) sum += Math.exp(scores[id] - scores[best]);
    likeliest[row] = best;
    logSums[row] = scores[best] + Math.log(sum);
  }
  return { likeliest, logSums };
}
