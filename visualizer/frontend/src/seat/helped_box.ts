/** What would have helped: Python runs the whole log again with one setting changed at a time, and names the best. */

import { Part } from "../board/part.ts";
import { h } from "../drawing/html.ts";
import type { SeatPage } from "./seat_page.ts";

export class HelpedBox extends Part<SeatPage> {
  said = h("p", { role: "status" });
  list = h("ol");
  button = h(
    "button",
    { "data-act": "helped", click: () => this.start() },
    "What would have helped? ",
    h("kbd", "H"),
  );
  element = h("section.helped.small", this.button, this.said, this.list);

  async start() {
    let tried = 0;
    this.list.replaceChildren();
    this.said.textContent = "Running the whole log again";
    const answer = await this.board.ask({ seat: "helped" }, ({ words }) => {
      tried += 1;
      this.said.textContent = `${tried} tried, the last one: ${words}`;
    });
    if (!answer) {
      this.said.textContent = `Stopped after ${tried}.`;
      return;
    }
    this.said.textContent = answer.error ?? answer.said ?? "";
    const { best = [] } = answer;
    this.list.replaceChildren(...best.map(({ words }) => h("li", words)));
    if (!answer.error && !best.length) this.said.textContent += " None of them makes that shorter.";
  }
}
