/** The seats above the block map. */

import { Part } from "../board/part.ts";
import { CanvasPainter } from "../drawing/canvas_painter.ts";
import { h, hide, pointIn, say, setAttribute } from "../drawing/html.ts";
import { drawSeats, SEATS_HEIGHT, seatAt, seatsOf } from "../drawing/seats.ts";
import { missing } from "../model/knowledge.ts";
import { Painted, paintTitle } from "./painted.ts";

export class SeatsRow extends Part {
  canvas = h("canvas", { role: "img", click: (event) => this.select(event) });
  painter = new CanvasPainter(this.canvas);
  count = h("span.count.small.muted");
  title = new Painted(h("h2", "Seats", this.count));
  painted = [this.title];
  element = h("div.seats", this.title.element, this.canvas);
  width!: number;

  layout() {
    this.width = this.element.clientWidth / this.board.unit;
  }

  draw() {
    const { board, painter } = this;
    const { frame, model, theme, unit, store } = board;
    if (missing(model, "settings", "admissions")) return;
    painter.begin(this.width, SEATS_HEIGHT, unit, theme);
    drawSeats(painter, { frame, model, width: this.width, selected: store.selected });
  }

  paint() {
    const words = this.#words();
    paintTitle(this.title.begin(this.width, 16, this.board, words), "Seats", words);
  }

  write() {
    const { model } = this.board;
    hide(this.canvas, !!missing(model, "settings", "admissions"));
    say(this.count, this.#words());
  }

  writeLabels() {
    const { frame, model } = this.board;
    const names = seatsOf(frame, frame.seats.all).map((id) =>
      id === null ? "empty" : model.requestSpan(id).name,
    );
    setAttribute(this.canvas, "aria-label", `Seats: ${names.slice(0, 40).join(", ")}`);
  }

  #words() {
    const { frame, model } = this.board;
    const unknown = missing(model, "settings", "admissions");
    if (unknown) return unknown;
    const { taken, held, all } = frame.seats;
    const empty = all - taken;
    const waits = frame.story.scheduled ? frame.asked.size : frame.waiting.length;
    const wait = waits === 1 ? "1 waits" : `${waits} wait`;
    const unused = empty > 0 && waits ? `, ${empty} empty while ${wait}` : "";
    const left = held < taken ? `; ${taken - held} left at its end` : "";
    return `${taken} of ${all} taken in the step${unused}${left}`;
  }

  select(event: MouseEvent) {
    const { frame, unit } = this.board;
    const { all } = frame.seats;
    const [x] = pointIn(this.canvas, event, unit);
    const id = seatsOf(frame, all)[seatAt(x, all, this.width)];
    if (id != null) this.board.select(id);
  }
}
