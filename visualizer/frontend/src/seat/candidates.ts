/** A candidate of a decision: its mark, what it holds, what only hindsight knows, and the gain once it was chosen. */

import type { Candidate } from "../board/seat.ts";
import { h } from "../drawing/html.ts";
import { swatchOf } from "../drawing/marks.ts";
import type { SeatPage } from "./seat_page.ts";

const MOST_BLOCKS = 14;

export function candidateElement(
  { words, facts, blocks, progress, choice }: Candidate,
  index: number,
  {
    page,
    isChosen,
    gain,
    choose,
  }: { page: SeatPage; isChosen: boolean; gain: string; choose: () => void },
) {
  const request = choice.type === "victim" ? Number(choice.request) : null;
  const rows = facts.map(({ name, words: said, hindsight }) =>
    h(
      "div",
      hindsight && { class: "hindsight" },
      h("dt.muted", name),
      h("dd", ...page.words(said), hindsight && h("em.muted", " hindsight")),
    ),
  );
  return h(
    "div.candidate",
    { "data-chosen": isChosen, "data-choice": JSON.stringify(choice), click: choose },
    h(
      "div.head.line",
      h(
        "button.pick",
        { role: "radio", "aria-checked": String(isChosen), "aria-label": `Choice ${index + 1}` },
        h("kbd", `${index + 1}`),
      ),
      h("strong", ...page.words(words)),
      h("span.gain", gain),
    ),
    h(
      "dl",
      blocks.length ? blockRow(blocks, page, request) : null,
      ...rows,
      progress && progress[1] > 0 ? progressRow(progress) : null,
    ),
  );
}

/** The blocks with their numbers, in the request's colour. */
function blockRow(blocks: number[], page: SeatPage, request: number | null) {
  const lane = request === null ? null : page.board.model.laneOf(request, page.step);
  const more = blocks.length - MOST_BLOCKS;
  const cells = blocks
    .slice(0, MOST_BLOCKS)
    .map((block) =>
      h(
        "span.block",
        h("small.muted", `${block}`),
        h("i", { "aria-hidden": "true", ...swatchOf(page.theme, lane) }),
      ),
    );
  return h(
    "div",
    h("dt.muted", "blocks"),
    h("dd.flow.blocks", ...cells, more > 0 && h("small.muted", `and ${more} more`)),
  );
}

/** How far an answer is; its end is hindsight. */
const progressRow = ([done, total]: [number, number]) =>
  h(
    "div",
    h("dt.muted", "answer"),
    h(
      "dd.line",
      h(
        "span.progress",
        { "aria-hidden": "true" },
        h("i", { style: `width: ${(100 * done) / total}%` }),
      ),
      ` ${done} of ${total} tokens `,
      h("em.muted", "hindsight"),
    ),
  );
