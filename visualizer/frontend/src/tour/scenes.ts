/** A tour as Python tells it (`visualizer/reading/tour`), and the log that its pictures are drawn from. */

import type { Theme } from "../drawing/palette.ts";
import type { Model } from "../model/model.ts";
import type { Span } from "../model/words.ts";

export type PanelKind = "run" | "lanes" | "blocks" | "queue" | "time" | "bars" | "both";

/** a name with its request, or a text */
type Words = (string | [name: string, request: number])[];

/** what `Scene.as_dict` in Python returns; it explains the fields */
export interface Scene {
  kind: string;
  title: string;
  sentences: Words[];
  step: number | null;
  panel: PanelKind;
  beside: PanelKind[];
  requests: number[];
  twins: number[];
  blocks: number[];
  brackets: [request: number, first: number, last: number, words: string][];
  bars: [name: string, value: number, words: string, lit: boolean][];
  window: [first: number, last: number] | null;
  question: string;
  why: string;
  replica: string;
  its_run: number; // of the replica, from 1
  run: number;
}

/** what a tour needs of the page that it is told on */
export interface TourHost {
  title: string;
  runs?: string[]; // the names of two compared runs
  theme: () => Theme;
  /** The log of a scene; `run` is 0 or 1 in a comparison. Null: the page does not have it. */
  modelOf: (scene: Scene, run: number) => Model | null;
  /** The name of a request that is not one of `modelOf`. */
  nameOf?: (request: number) => string | undefined;
  /** Goes to what a scene shows, after the tour is closed. */
  leave: (scene: Scene) => void;
}

/** The sentences of a scene as spans, with the names that the page has for the requests. */
export function spansOf({ sentences }: Scene, nameOf: (request: number) => string | undefined) {
  return sentences.flatMap((words, index): Span[] => [
    ...(index ? [{ text: " " }] : []),
    ...words.map((word) =>
      typeof word === "string"
        ? { text: word }
        : { text: nameOf(word[1]) ?? word[0], request: word[1] },
    ),
  ]);
}

/** The end of a request's name: "Dev's 665 ms". */
export const owned = (name: string) => `${name}’s`;
