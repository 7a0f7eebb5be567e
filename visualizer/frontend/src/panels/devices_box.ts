/**
 * A model on several devices: what each of them did in the forward pass of the step, on its own time. As the figure
 * `visualizer/figures/lanes.py`.
 */

import type { Board } from "../board/board.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, pointIn, setAttribute } from "../drawing/html.ts";
import { duration } from "../model/duration.ts";
import type { DeviceSpan } from "../model/story.ts";
import { baseline } from "./painted.ts";

// px
const LINE = 16;
const LANE = 16;
const BAR = 11;
const WORDS = { size: 11 };
const KINDS = ["computes", "sends or receives", "waits"];

const kindOf = (kind: string) =>
  kind === "compute" ? 0 : kind === "wait" || kind === "sent" ? 2 : 1;

export class DevicesBox {
  canvas = h("canvas", { role: "img", "aria-label": "Devices" });
  painter = new CanvasPainter(this.canvas);
  element = h("div.devices", { hidden: true }, this.canvas);
  lanes: DeviceSpan[][] = [];
  /** How many there are, once a step was computed on several. */
  count = 0;
  x: [left: number, perMicrosecond: number] = [0, 1];
  /** Where the lanes begin: on a phone, the key has a line of its own. */
  top = 0;

  constructor(board: Board) {
    board.tooltip.listen(
      this.canvas,
      (event) => this.spanAt(pointIn(this.canvas, event, board.unit)),
      ([device, [kind, start, end, bytes]]) => [
        `device ${device} ${KINDS[kindOf(kind)]}, ${duration(end - start)}`,
        ...(bytes ? [`${kind}: ${bytes.toLocaleString("en")} bytes`] : []),
      ],
      () => false,
    );
  }

  draw(board: Board, left: number, right: number) {
    const { devices } = board.frame.story;
    const { painter } = this;
    this.lanes = devices?.lanes ?? [];
    this.count = this.lanes.length || this.count;
    hide(this.element, !this.count);
    if (!this.count) return;
    this.top = board.narrow ? 2.5 * LINE : 1.5 * LINE;
    painter.begin(right, this.top + this.count * LANE, board.unit, board.theme);
    const { muted } = painter.theme;
    const end = Math.max(...this.lanes.map((lane) => lane[lane.length - 1][2]));
    const spent = [0, 0, 0];
    for (const [kind, from, to] of this.lanes.flat()) spent[kindOf(kind)] += to - from;
    this.x = [left, (right - left) / end];
    const words = devices
      ? `Devices, step ${devices.step}: ${duration(end)}`
      : "Devices: no step was computed";
    const title = { ...WORDS, bold: true };
    painter.text(words, 0, 4 + baseline(11, LINE), title);
    let x = board.narrow ? 0 : Math.max(left, painter.measure(words, title) + 14);
    const key = this.top - LINE - 4;
    const shares = spent.map((time, kind) => {
      const share = Math.round((100 * time) / (end * this.count));
      return `${KINDS[kind]} ${share} %`;
    });
    shares.forEach((share, kind) => {
      if (!devices || x + painter.measure(share, WORDS) + 14 > right) return;
      this.#bar(kind, x, key + 3, 10);
      painter.text(share, x + 14, key + baseline(11, LINE), { ...WORDS, color: muted });
      x += painter.measure(share, WORDS) + 28;
    });
    this.lanes.forEach((lane, device) => {
      const y = this.top + device * LANE;
      painter.text(`device ${device}`, 0, y + baseline(11, BAR), { ...WORDS, color: muted });
      for (const [kind, from, to] of lane)
        this.#bar(kindOf(kind), left + from * this.x[1], y, (to - from) * this.x[1]);
    });
    setAttribute(this.canvas, "aria-label", devices ? `${words}; ${shares.join(", ")}` : words);
  }

  #bar(kind: number, x: number, y: number, width: number) {
    const { painter } = this;
    const { ink, sharedBorder, faint } = painter.theme;
    if (kind === 2) painter.fill(x, y + BAR / 2, width, 1, faint);
    else painter.fill(x, y, width, BAR, kind ? ink : sharedBorder);
  }

  spanAt([x, y]: [number, number]): [device: number, span: DeviceSpan] | null {
    const device = Math.floor((y - this.top) / LANE);
    const at = (x - this.x[0]) / this.x[1];
    const span = this.lanes[device]?.find(([, from, to]) => from <= at && at < to);
    return span ? [device, span] : null;
  }
}
