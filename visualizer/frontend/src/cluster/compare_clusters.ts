/**
 * Two cluster runs of one workload: what changed in numbers, and the requests that changed most, each with its time in
 * both runs. A button opens the board of either run. Requests are paired by their numbers.
 */

import { bindKeys } from "../board/keys.ts";
import { Shell, type ShellOptions } from "../board/shell.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, plural } from "../drawing/html.ts";
import { LogReader } from "../host/log_reader.ts";
import { duration } from "../model/duration.ts";
import { table } from "../panels/tables.ts";
import { openTour } from "../tour/open_tour.ts";
import type { Scene } from "../tour/scenes.ts";
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

/** The decision for the replica that answers a request. */
const lastOf = ({ routes }: ClusterRequest) => routes[routes.length - 1];

const isMoved = ({ a, b }: Pair) => lastOf(a).replica !== lastOf(b).replica;

/** The figures of both runs: `[name, a, b]`. */
function clusterTotals(models: Model[]) {
  const percent = (part: number, whole: number) =>
    whole ? `${((100 * part) / whole).toFixed(1)} %` : "none";
  const columns = models.map((model) => {
    const { requests, delivered, prompt, judged, wrong, lost, retried } = clusterFacts(model);
    const ttfts = model.requests.flatMap((request) => model.ttft(request) ?? []);
    const mean = ttfts.reduce((sum, one) => sum + one, 0) / ttfts.length;
    return {
      router: model.router,
      requests: `${requests}`,
      "prefix hits": percent(delivered, prompt),
      "predicted as delivered": percent(judged - wrong.length, judged),
      "TTFT, mean": ttfts.length ? duration(mean) : "none",
      "TTFT, max": ttfts.length ? duration(Math.max(...ttfts)) : "none",
      lost: `${lost}`,
      retried: `${retried}`,
    };
  });
  const names = Object.keys(columns[0]) as (keyof (typeof columns)[0])[];
  return names.map((name) => [name, ...columns.map((column) => column[name])]);
}

/** When a request's first token and its end came, after its first decision (us). */
function timesOf(model: Model, request: ClusterRequest) {
  const first = model.ttft(request);
  const ends = request.places.flatMap(({ run, its }) => {
    const finished = run.span(its)?.finished;
    return finished ? [run.endOf(finished.step) - request.routes[0].at] : [];
  });
  const end = Math.max(...ends.filter((time) => !Number.isNaN(time)));
  return { first, end: Number.isFinite(end) ? end : (first ?? 0) };
}

/** What a run's button says. */
const labelOf = (name: string, router: string) => (name === router ? name : `${name}: ${router}`);

interface ComparisonOptions extends ShellOptions {
  names: [string, string];
  scenes?: Scene[]; // of the tour
}

class ClusterComparison extends Shell {
  models: Model[];
  names: [string, string];
  pairs: Pair[];
  scenes: Scene[] | undefined;
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
    this.scenes = options.scenes;
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
      h(
        "div.foot.switch.flow.small.muted",
        ...this.buttons.map(({ button }) => button),
        h("button", { "data-act": "tell", click: () => this.tellMe() }, "tell me ", h("kbd", "G")),
      ),
      this.both,
      this.host,
    );
    bindKeys(this.root, { g: () => void this.tellMe() }, () => !!this.host.hidden);
    this.show("both");
    this.root.dataset.ready = "true";
  }

  /** The result in one sentence. */
  get verdict() {
    const moved = this.pairs.filter(isMoved).length;
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

  /** Tells how the runs differ, scene by scene. */
  tellMe() {
    const { models, names } = this;
    const host = {
      title: names.join(" and "),
      runs: names,
      theme: () => this.theme,
      modelOf: ({ replica, its_run, step }: Scene, run: number) =>
        models[run].replica(replica)?.partWith(its_run, step)?.model ?? null,
      nameOf: (id: number) => models[0].request(id)?.name,
      leave: () => {},
    };
    return openTour(this, host, this.scenes);
  }

  #tables() {
    const [a, b] = this.names;
    const rows = this.pairs.slice(0, MOST).map((pair) => {
      const both = [pair.a, pair.b];
      const ttfts = this.models.map((model, i) => model.ttft(both[i]));
      const hits = this.models.map((model, i) => model.delivered(lastOf(both[i])));
      const canvas = h("canvas", { "aria-hidden": "true" });
      this.bars.push({ painter: new CanvasPainter(canvas), pair });
      const { gain } = pair;
      return [
        pair.a.name,
        gain ? `${gain > 0 ? "−" : "+"}${duration(Math.abs(gain))}` : gain === null ? "" : "0 ms",
        ...ttfts.map((ttft) => (ttft === null ? "none" : duration(ttft))),
        ...both.map((request) => lastOf(request).replica),
        ...hits.map((hit) => (hit === null ? "" : `${hit}`)),
        canvas,
      ];
    });
    const heads = ["TTFT", "replica", "hit"].flatMap((name) => [`${name} ${a}`, `${name} ${b}`]);
    const times = `time in ${a} (above) and ${b}: to the first token, to the end`;
    const requests = table(
      "Requests whose first token moved most",
      ["request", "change", ...heads, times],
      rows,
      this.pairs.length,
    );
    requests.classList.add("requests");
    this.bars.forEach(({ painter, pair }) => {
      const row = painter.canvas.closest("tr");
      row?.setAttribute("data-request", `${pair.a.id}`);
      row?.setAttribute("data-moved", `${isMoved(pair)}`);
    });
    const totals = table("Totals", ["figure", a, b], clusterTotals(this.models));
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
  const reader = new LogReader(log, undefined, model);
  await reader.follow(() => {});
  if (reader.error) throw reader.error;
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
