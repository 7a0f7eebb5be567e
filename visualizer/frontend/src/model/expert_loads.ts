/**
 * How many tokens each expert of a mixture computed, by layer; `engine/core/log/expert_loads.py` explains the packed form.
 */

import { messages, text } from "./messages.ts";

/** [layer][expert]; an empty layer has no experts */
export type Loads = number[][];

const MOST_EXPERTS = 65_536; // as in Python: a damaged number would fill the memory

/** The loads of packed layers; of others, the same. */
export const unpacked = (layers: number[][]): Loads =>
  layers.map((layer) => {
    if (sum(layer.map((load) => Math.max(1, -load))) > MOST_EXPERTS)
      throw new RangeError(`a layer has at most ${MOST_EXPERTS} experts`);
    return layer.flatMap((load) => (load > 0 ? load : new Array(-load || 1).fill(0)));
  });

/** Adds a step's loads to those of all steps before; the first has none before it. */
export function added(before: Loads, step: Loads) {
  if (!before.length) return step;
  if (before.length !== step.length || before.some(({ length }, i) => length !== step[i].length))
    throw new RangeError("the numbers of layers and experts must not change");
  return before.map((loads, layer) => loads.map((load, expert) => load + step[layer][expert]));
}

/** A load as a multiple of its layer's mean: "3.9". */
export const timesMean = (loads: number[], load: number) =>
  ((load * loads.length) / Math.max(1, sum(loads))).toFixed(1);

/** The expert with the most tokens; of several, the first. */
export function busiest(layers: Loads) {
  const tokens = Math.max(...layers.map(most));
  const layer = layers.findIndex((loads) => loads.includes(tokens));
  return { layer, expert: layers[layer].indexOf(tokens), tokens };
}

/** Experts without a token, and all of them. */
export const idle = (layers: Loads) => ({
  idle: sum(layers.map((loads) => loads.filter((load) => !load).length)),
  experts: sum(layers.map(({ length }) => length)),
});

/** "busiest expert 17 of layer 3: 31 tokens, 3.9 times the mean; 12 of 1,024 idle". */
export function loadWords(layers: Loads) {
  const one = busiest(layers);
  const { idle: none, experts } = idle(layers);
  const words = { ...one, times_mean: timesMean(layers[one.layer], one.tokens) };
  return (
    text(messages.experts.busiest, words) +
    text(messages.experts.idle, {
      idle: none ? none.toLocaleString("en") : 0,
      experts: experts.toLocaleString("en"),
    })
  );
}

/**
 * "128 tokens × 8 experts; ".
 *
 * @param tokens that the step computed
 */
export function computedWords(layers: Loads, tokens: number) {
  const pairs = sum(layers.find(({ length }) => length) ?? []);
  return text(messages.experts.computed, { tokens, per_token: Math.round(pairs / tokens) });
}

const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);

export const most = (loads: number[]) => Math.max(0, ...loads);
