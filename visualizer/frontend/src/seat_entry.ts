/** The exports of `seat.js`: the scheduler's seat, which a board loads when the reader sits down. */

export { answerOnBoard } from "./seat/helped_box.ts";
export { openSeat } from "./seat/seat_page.ts";
