/** The seats above the block map. */

/** @import { Board } from "../board/board.js" */
import { CanvasPainter } from "../drawing/canvas_painter.js";
import { h } from "../drawing/html.js";
import { drawSeats, SEATS_HEIGHT, seatAt, seatsOf } from "../drawing/seats.js";
import { missing } from "../model/knowledge.js";

export class SeatsRow {
  /** @param {Board} board */
  constructor(board) {
    this.board = board;
    this.canvas = h("canvas", { role: "img" });
    this.count = h("span", { class: "count" });
    this.element = h("div", { class: "seats" }, h("h2", {}, "Seats", this.count), this.canvas);
    this.painter = new CanvasPainter(this.canvas);
    this.canvas.addEventListener("click", (event) => this.select(event), { signal: board.signal });
  }

  draw() {
    const { board, painter } = this;
    const { frame, model, theme, unit, store } = board;
    if (missing(model, "settings", "admissions")) return;
    /** @type {number} */
    this.width = this.element.clientWidth / unit;
    painter.begin(this.width, SEATS_HEIGHT, unit, theme);
    drawSeats(painter, { frame, model, width: this.width, selected: store.selected });
  }

  write() {
    const { frame, model } = this.board;
    const unknown = missing(model, "settings", "admissions");
    this.canvas.hidden = !!unknown;
    this.count.textContent = unknown;
    if (unknown) return;
    const { taken, all } = frame.seats;
    const empty = all - taken;
    const waits = frame.waiting.length;
    const wait = waits === 1 ? "1 waits" : `${waits} wait`;
    const unused = empty > 0 && waits ? `, ${empty} empty while ${wait}` : "";
    this.count.textContent = `${taken} of ${all} taken${unused}`;
    const names = seatsOf(frame, all).map((id) =>
      id === null ? "empty" : model.requestSpan(id).name,
    );
    this.canvas.setAttribute("aria-label", `Seats: ${names.slice(0, 40).join(", ")}`);
  }

  /** @param {MouseEvent} event */
  select(event) {
    const { frame, unit } = this.board;
    const { all } = frame.seats;
    const x = (event.clientX - this.canvas.getBoundingClientRect().left) / unit;
    const id = seatsOf(frame, all)[seatAt(x, all, this.width)];
    if (id != null) this.board.select(id);
  }
}
