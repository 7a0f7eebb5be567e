/** The selected decision as a table: what the router knew of each replica, and why it chose one. */

import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { causeWords, paintCause } from "../drawing/causes.ts";
import { h } from "../drawing/html.ts";
import { levelDot } from "../drawing/words_html.ts";
import { duration } from "../model/duration.ts";
import type { ClusterBoard } from "./cluster_board.ts";
import { clusterFacts, lengthOf, predictedHit } from "./cluster_facts.ts";
import type { ClusterModel, Route } from "./cluster_model.ts";
import {
  candidateIds,
  failuresBefore,
  lengthWords,
  numberWords,
  reasonWords,
  tieWords,
} from "./cluster_words.ts";
import { gonePrefix } from "./gone_prefix.ts";
import type { Replica } from "./replica.ts";

const BOXES = 6; // seats that are drawn one by one
const MOST = 12; // replicas in the table
const TERMS = 5; // forms of a score's terms

export class DecisionPanel extends Part<ClusterBoard> {
  element = h("section.decision", { "aria-label": "The decision" });

  write() {
    const { board } = this;
    const { route } = board;
    patchChildren(this.element, [...(route ? decisionNodes(board, route) : noDecision())]);
  }
}

const noDecision = () => [
  h("h2", "The decision"),
  h("p", "Select a request to see what the router knew when it chose its replica."),
];

function decisionNodes({ model }: ClusterBoard, route: Route) {
  const { replica: chosen, scores, terms } = route;
  const known = new Set(candidateIds(route));
  const all = model.replicas
    .filter(({ id }) => known.has(id))
    .sort((a, b) => a.id.localeCompare(b.id, undefined, { numeric: true }));
  const rank = ({ id }: Replica) => (id === chosen ? -Infinity : (scores[id] ?? 0));
  const best = all.toSorted((a, b) => rank(a) - rank(b)).slice(0, MOST);
  const rows = all.filter((one) => best.includes(one));
  const hasScores = Object.keys(scores).length > 0;
  const delivered = model.delivered(route);
  const heads = ["replica", "predicted hit", "in flight, as seen", ...(hasScores ? ["score"] : [])];
  const rest = all.length - rows.length;
  const tie = tieWords(route);
  return [
    h("h2", `Why replica ${chosen}`, h("span.count.small.muted", reasonWords(route))),
    h(
      "table",
      h("thead", h("tr", ...heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", ...rows.map((replica) => rowOf(route, replica, delivered, hasScores))),
    ),
    rest ? h("p.muted", `and ${rest} more replicas`) : "",
    ...(Object.keys(terms).length
      ? sumNodes(
          route,
          rows.map(({ id }) => id).filter((id) => terms[id]),
        )
      : []),
    tie ? h("p", `${tie}.`) : "",
    ...failuresBefore(route).map(({ replica, why }) =>
      h("p", levelDot("recorded"), ` Replica ${replica || "none"}: ${why}.`),
    ),
    h("p", ...outcome(model, route, delivered)),
    h("p.muted", `${hasScores ? "The lowest score wins. " : ""}${promptWords(route)}`),
  ].filter((node) => node !== "");
}

const promptWords = (route: Route) =>
  route.prompt
    ? `The request has ${lengthWords(route)}.`
    : "The router did not get the prompt's tokens.";

/** How each score adds up: a bar of its terms, as long as its share of the largest score, and their numbers. */
function sumNodes({ terms, scores, replica: chosen }: Route, ids: string[]) {
  const names = [...new Set(ids.flatMap((id) => Object.keys(terms[id] ?? {})))];
  const most = Math.max(...ids.map((id) => scores[id] ?? 0)) || 1;
  const swatch = (name: string) =>
    h("i", { class: `summand t${names.indexOf(name) % TERMS}`, "data-term": name });
  const sumOf = (id: string) => {
    const parts = Object.entries(terms[id] ?? {}).filter(([, value]) => value);
    const bar = parts.map(([name, value]) => {
      const part = swatch(name);
      part.style.width = `${(100 * Math.max(0, value)) / most}%`;
      return part;
    });
    const words = parts.flatMap(([name, value], i) => [
      i ? " + " : " ",
      h("span.one", swatch(name), `${name} ${numberWords(value)}`),
    ]);
    return h(
      `div.sum${id === chosen ? ".chosen" : ""}`,
      { "data-replica": id, "data-score": scores[id] },
      h("strong", id),
      h("span.added.line", ...bar),
      h("p.small", h("strong", numberWords(scores[id] ?? 0)), parts.length ? " =" : "", ...words),
    );
  };
  return [
    h("div.sums", { role: "group", "aria-label": "How the scores add up" }, ...ids.map(sumOf)),
  ];
}

function rowOf(route: Route, replica: Replica, delivered: number | null, hasScores: boolean) {
  const { id } = replica;
  const isChosen = id === route.replica;
  const hit = route.hits[id] ?? 0;
  const score = route.scores[id];
  return h(
    "tr",
    { class: isChosen ? "chosen" : null, "data-replica": id, "data-hit": hit },
    h("th", { scope: "row" }, id),
    h(
      "td",
      h("div.pair.line", hitBar(hit, isChosen ? delivered : null, lengthOf(route)), `${hit}`),
    ),
    h("td", seatNodes(replica, route)),
    hasScores ? h("td.score", score === undefined ? "" : numberWords(score)) : null,
  );
}

/** Outline: predicted; hatching: delivered. */
function hitBar(hit: number, delivered: number | null, prompt: number) {
  return h(
    "span.hit",
    delivered ? barOf("delivered", delivered, prompt) : null,
    hit ? barOf("predicted", hit, prompt) : null,
  );
}

/** A part of a bar. */
function barOf(name: string, part: number, whole: number) {
  const element = h("i", { class: name });
  element.style.width = `${Math.min(100, (100 * part) / whole)}%`;
  return element;
}

/** The seats of a replica, those in use filled, and requests beyond them. */
function seatNodes(replica: Replica, { loads, at }: Route) {
  const load = loads[replica.id] ?? 0;
  const seats = replica.runAt(at)?.model.settings.max_batch_size ?? 0;
  if (seats > BOXES)
    return h("span.loads.line", h("span.hit", barOf("taken", load, seats)), `${load}`);
  const element = h("span.loads.line");
  for (let i = 0; i < seats; i += 1) element.append(h("i", { class: i < load ? "taken" : "" }));
  for (let i = seats; i < Math.min(load, seats + 3); i += 1) element.append(h("i.beyond"));
  element.append(`${load}`);
  return element;
}

/** What the log says happened. */
function outcome(model: ClusterModel, route: Route, delivered: number | null) {
  const predicted = predictedHit(route);
  if (delivered === null) return ["The log does not have its admission, so its hit is unknown."];
  const gone = gonePrefix(model, route);
  const nodes = [
    levelDot("recorded"),
    ` Recorded: ${predicted} predicted, ${delivered} delivered.`,
  ];
  if (gone?.at != null)
    nodes.push(
      " ",
      levelDot("inferred"),
      ` Inferred: the eviction at ${duration(gone.at)} is the cause.`,
    );
  return nodes;
}

/** All predictions and what the caches delivered. */
export class AgreementPanel extends Part<ClusterBoard> {
  element = h("section.agreement", { "aria-label": "Predicted and delivered" });

  write() {
    const { board } = this;
    const { predicted, delivered, judged, wrong, byPrefix } = clusterFacts(board.model);
    const most = Math.max(1, predicted, delivered);
    const bar = (name: string, tokens: number) =>
      h(
        "div.pair.line",
        h("span.name.muted", name),
        h("span.hit", barOf(name, tokens, most)),
        h("strong", `${tokens.toLocaleString("en")} tokens`),
      );
    const byLoad = board.model.routes.length - byPrefix;
    const some = wrong.slice(0, 6);
    patchChildren(this.element, [
      h("h2", "Predicted and delivered", h("span.count.small.muted", `${judged} predictions`)),
      bar("predicted", predicted),
      bar("delivered", delivered),
      h(
        "p",
        `${byPrefix} went to a replica with a predicted hit, ${byLoad} without one. `,
        judged
          ? wrong.length
            ? `${wrong.length === 1 ? "One prediction was" : `${wrong.length} predictions were`} wrong: `
            : "Every prediction was right."
          : "",
        ...some.flatMap((route, i) => [i ? ", " : "", board.chip(route.request.id)]),
        wrong.length > some.length
          ? ` and ${wrong.length - some.length} more.`
          : wrong.length
            ? "."
            : "",
      ),
    ]);
  }
}

/** The forms of the picture, and the colours of the causes for which requests have waited. */
export class FormsPanel extends Part<ClusterBoard> {
  element = h("section.forms", { "aria-label": "How to read it" });

  write() {
    const { model, theme } = this.board;
    const causes = new Set(model.replicas.flatMap((replica) => [...replica.model.waitCauses]));
    const waits = [...causes].map((cause) => {
      const swatch = h("i.cause");
      paintCause(swatch, theme, cause);
      return h("p.line.muted", swatch, `waiting: ${causeWords(cause)}`);
    });
    patchChildren(this.element, [
      h("h2", "How to read it"),
      ...[...FORMS, ...faultForms(model)].map(([form, words]) =>
        h("p.line.muted", h("i", { class: form }), words),
      ),
      ...waits,
    ]);
  }
}

const FORMS = [
  ["outlined", "outline: predicted hit; hatching: delivered; no bar: none"],
  ["eviction", "an eviction on that replica"],
  ["way", "the selected request, from the router to its lane"],
];

/** The forms of what went wrong, if anything did. */
function faultForms({ failures, replicas }: ClusterModel) {
  const isThere = [
    failures.length > 0,
    replicas.some(({ ejections }) => ejections.length),
    replicas.some(({ left, stays }) => left || stays.length > 1),
  ];
  return FAULTS.filter((_, i) => isThere[i]);
}

const FAULTS = [
  ["failed", "a step on a request's way that failed there"],
  ["ejected", "ejected: the replica gets no new requests"],
  ["absent", "the replica is not there"],
];
