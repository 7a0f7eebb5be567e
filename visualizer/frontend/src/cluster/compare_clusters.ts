/**
 * Two cluster runs of one workload: what changed in numbers, and the requests that changed most, each with its time in
 * both runs. A button opens the board of either run. Requests are paired by their numbers.
 */

import { Shell, type ShellOptions } from "../board/shell.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import { piecesOf } from "../host/log_bytes.ts";
import { duration } from "../model/duration.ts";
import { table } from "../panels/tables.ts";
import css from "./cluster.css";
import { ClusterBoard } from "./cluster_board.ts";
import { clusterFacts } from "./cluster_facts.ts";
import { type ClusterRequest, ClusterModel as Model } from "./cluster_model.ts";

/** a request in both runs */
interface Pair {
  a: ClusterRequest;
  b: ClusterRequest;
  gain: number | null; // how much earlier its first token comes in B (us)
}

const MOST = 40; // requests in the table
const BAR = { width: 300, height: 22 };

/** The requests of both runs, those first whose first token moved most. */
function pairsOf(a: Model, b: Model): Pair[] {
  const pairs = a.requests.flatMap((one) => {
    const other = b.request(one.id);
    if (!other?.routes.length) return [];
    const [before, after] = [a.ttft(one), b.ttft(other)];
    const gain = before === null || after === null ? null : before - after;
    return [{ a: one, b: other, gain }];
  });
  const size = ({ gain }: Pair) => (gain === null ? Infinity : Math.abs(gain));
  return pairs.sort((one, other) => size(other) - size(one));
}

/** The replica that answers a request. */
const replicaOf = ({ routes }: ClusterRequest) => routes[routes.length - 1].replica;

/** The figures of both runs: `[name, a, b]`. */
function clusterTotals(models: Model[]): [string, string, string][] {
  const facts = models.map(clusterFacts);
  const percent = (part: number, whole: number) =>
    whole ? `${((100 * part) / whole).toFixed(1)} %` : "none";
  const known = models.map((model) =>
    model.requests.flatMap((request) => model.ttft(request) ?? []),
  );
  const means = known.map((all) =>
    all.length ? duration(all.reduce((sum, one) => sum + one, 0) / all.length) : "none",
  );
  const last = facts.map(({ ttft }) =>
    ttft.length ? duration(ttft[ttft.length - 1].value) : "none",
  );
  const row = (
    name: string,
    value: (fact: (typeof facts)[0], index: number) => string,
  ): [string, string, string] => [name, value(facts[0], 0), value(facts[1], 1)];
  return [
    row("router", (_, i) => models[i].router),
    row("requests", ({ requests }) => `${requests}`),
    row("prefix hits", ({ delivered, prompt }) => percent(delivered, prompt)),
    row("predicted as delivered", ({ judged, wrong }) => percent(judged - wrong.length, judged)),
    row("TTFT, mean", (_, i) => means[i]),
    row("TTFT, max", (_, i) => last[i]),
    row("lost", ({ lost }) => `${lost}`),
    row("retried", ({ retried }) => `${retried}`),
  ];
}

/** When a request's first token and its end came, after its first decision (us). */
function timesOf(model: Model, request: ClusterRequest) {
  const first = model.ttft(request);
  const ends = request.places.flatMap(({ replica: id, its }) => {
    const replica = model.replica(id);
    const span = replica?.span(its);
    return replica && span?.finished
      ? [replica.endOf(span.finished.step) - request.routes[0].at]
      : [];
  });
  const end = Math.max(...ends.filter((time) => !Number.isNaN(time)));
  return { first, end: Number.isFinite(end) ? end : (first ?? 0) };
}

/** What a run's button says. */
const labelOf = (name: string, router: string) => (name === router ? name : `${name}: ${router}`);

interface ComparisonOptions extends ShellOptions {
  names: [string, string];
}

class ClusterComparison extends Shell {
  models: Model[];
  names: [string, string];
  pairs: Pair[];
  host = h("div.run", { hidden: true });
  /** Each with its pair. */
  bars: { painter: CanvasPainter; pair: Pair }[] = [];
  both: HTMLElement;
  buttons: { shows: 0 | 1 | "both"; button: HTMLButtonElement }[];

  constructor(host: Element, models: Model[], options: ComparisonOptions) {
    super(host, options, {
      name: ".cluster.comparison",
      label: "Comparison of two cluster runs",
      css,
    });
    this.models = models;
    this.names = options.names;
    this.pairs = pairsOf(models[0], models[1]);
    this.both = h("div.both", ...this.#tables());
    const labels = models.map(({ router }, i) => labelOf(this.names[i], router));
    this.buttons = (["both", 0, 1] as const).map((shows) => {
      const attributes = { "data-act": `show-${shows}`, click: () => this.show(shows) };
      const button = h("button", attributes, shows === "both" ? "Both" : labels[shows]);
      return { shows, button };
    });
    this.root.append(
      h("p.sentence", this.verdict),
      h("div.foot.switch", ...this.buttons.map(({ button }) => button)),
      this.both,
      this.host,
    );
    this.show("both");
    this.root.dataset.ready = "true";
  }

  /** The result in one sentence. */
  get verdict() {
    const moved = this.pairs.filter(({ a, b }) => replicaOf(a) !== replicaOf(b)).length;
    const earlier = this.pairs.filter(({ gain }) => Number(gain) > 0).length;
    const later = this.pairs.filter(({ gain }) => Number(gain) < 0).length;
    const [a, b] = this.names;
    return (
      `Of ${plural(this.pairs.length, "request")}, ${moved} went to another replica in ${b} than in ${a}. ` +
      `The first token comes earlier in ${b} for ${earlier}, later for ${later}.`
    );
  }

  /** Shows the comparison, or the board of one run. */
  show(what: "both" | 0 | 1) {
    const signal = this.endInside();
    this.host.hidden = what === "both";
    this.both.hidden = what !== "both";
    for (const { shows, button } of this.buttons)
      button.setAttribute("aria-pressed", `${shows === what}`);
    this.root.dataset.shows = what === "both" ? what : ["a", "b"][what];
    if (what === "both") this.render();
    else new ClusterBoard(this.host, { signal, theme: this.fixedTheme }).open(this.models[what]);
  }

  #tables() {
    const [a, b] = this.names;
    const shown = this.pairs.slice(0, MOST);
    const rows = shown.map((pair) => {
      const [before, after] = this.models.map((model, i) => {
        const request = i ? pair.b : pair.a;
        const ttft = model.ttft(request);
        const hit = model.delivered(request.routes[request.routes.length - 1]);
        return [
          replicaOf(request),
          hit === null ? "" : `${hit}`,
          ttft === null ? "none" : duration(ttft),
        ];
      });
      const { gain } = pair;
      const change = gain === null ? "" : `${gain > 0 ? "−" : "+"}${duration(Math.abs(gain))}`;
      return [
        pair.a.name,
        gain ? change : "0 ms",
        before[2],
        after[2],
        before[0],
        after[0],
        before[1],
        after[1],
      ];
    });
    const heads = [
      "request",
      "change",
      `TTFT ${a}`,
      `TTFT ${b}`,
      `replica ${a}`,
      `replica ${b}`,
      `hit ${a}`,
      `hit ${b}`,
    ];
    const requests = table("Requests whose first token moved most", heads, rows, this.pairs.length);
    requests.classList.add("requests");
    requests
      .querySelector("thead tr")
      ?.append(
        h("th", { scope: "col" }, `time in ${a} (above) and ${b}: to the first token, to the end`),
      );
    requests.querySelectorAll("tbody tr").forEach((row, i) => {
      const pair = shown[i];
      if (!pair) return;
      const isMoved = replicaOf(pair.a) !== replicaOf(pair.b);
      row.setAttribute("data-request", `${pair.a.id}`);
      row.setAttribute("data-moved", `${isMoved}`);
      const canvas = h("canvas", { "aria-hidden": "true" });
      this.bars.push({ painter: new CanvasPainter(canvas), pair });
      row.append(h("td", canvas));
    });
    const totals = table("Totals", ["", a, b], clusterTotals(this.models));
    totals.querySelector("thead th")?.replaceChildren("figure");
    totals.classList.add("totals");
    return [
      totals,
      h("div.scroll", { tabindex: "0", role: "group", "aria-label": "Requests" }, requests),
    ];
  }

  /** Draws the time bars. */
  render() {
    const { theme } = this;
    const times = this.bars.map(({ pair: { a, b } }) => [
      timesOf(this.models[0], a),
      timesOf(this.models[1], b),
    ]);
    const longest = Math.max(1, ...times.flat().map(({ end }) => end));
    this.bars.forEach(({ painter }, i) => {
      painter.begin(BAR.width, BAR.height, 1, theme);
      times[i].forEach(({ first, end }, side) => {
        const y = side ? 12 : 3;
        const x = ((first ?? 0) / longest) * BAR.width;
        const right = (end / longest) * BAR.width;
        painter.fill(0, y, x, 7, theme.used);
        if (side) painter.frame(x, y, Math.max(2, right - x), 7, theme.ink);
        else painter.fill(x, y, Math.max(2, right - x), 7, theme.ink);
      });
    });
  }
}

/** Reads a whole cluster log. */
async function read(log: ArrayBufferView) {
  const model = new Model();
  for await (const { bytes } of piecesOf(log)) model.read(bytes);
  model.end();
  return model;
}

/** Draws a comparison of two cluster logs in `host`. */
export async function drawClusterComparison(
  host: Element,
  logs: ArrayBufferView[],
  options: ComparisonOptions,
) {
  return new ClusterComparison(host, await Promise.all(logs.map(read)), options);
}
