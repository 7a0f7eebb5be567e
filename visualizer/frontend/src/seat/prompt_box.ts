/**
 * A prompt of the reader's: how far it matches down the prefix tree of the step, while it is typed. A hit comes in whole
 * blocks, so the matched text may be longer than what a request would find.
 */

import { Part } from "../board/part.ts";
import { h, plural, visible } from "../drawing/html.ts";
import type { TreeNode } from "../model/tree.ts";
import type { SeatPage } from "./seat_page.ts";

/** a node of the path, and how many of its tokens the prompt has */
export type Agreed = { node: TreeNode; tokens: number };

/** The path from the top along which a prompt agrees with cached prefixes. */
export function matchText(tree: TreeNode[], prompt: string): Agreed[] {
  const path: Agreed[] = [];
  let rest = prompt;
  let parent = 0;
  for (;;) {
    const found = tree
      .filter((node) => node.parent === parent)
      .map((node) => ({ node, ...agreement(node.texts, rest) }))
      .reduce<(Agreed & { length: number }) | null>(
        (best, one) => (one.tokens > (best?.tokens ?? 0) ? one : best),
        null,
      );
    if (!found) return path;
    path.push({ node: found.node, tokens: found.tokens });
    if (found.tokens < found.node.texts.length) return path;
    rest = rest.slice(found.length);
    parent = found.node.id;
  }
}

/** How many pieces of an edge a text begins with, and how long they are. */
function agreement(pieces: string[], text: string) {
  let length = 0;
  let tokens = 0;
  for (const piece of pieces) {
    if (!text.startsWith(piece, length)) break;
    length += piece.length;
    tokens += 1;
  }
  return { tokens, length };
}

export class PromptBox extends Part<SeatPage> {
  input = h("input", {
    type: "text",
    placeholder: "Type the beginning of a prompt",
    "aria-label": "A prompt of your own",
    autocomplete: "off",
    spellcheck: "false",
    input: () => this.write(),
  });
  said = h("p.small", { role: "status" });
  path = h("p.path.small");
  element = h(
    "section.own-prompt",
    h("label.small.muted", "How far would a prompt match? ", this.input),
    this.said,
    this.path,
  );

  write() {
    const { model } = this.board.board;
    const { tree } = model.frame(this.board.step);
    this.element.hidden = !tree.some(({ texts }) => texts.some(Boolean));
    const path = matchText(tree, this.input.value);
    const tokens = path.reduce((sum, one) => sum + one.tokens, 0);
    const blocks = Math.floor(tokens / model.settings.block_size);
    this.said.textContent = this.input.value
      ? `${plural(tokens, "token")} ${tokens === 1 ? "agrees" : "agree"} with a cached prefix: ${plural(blocks, "block")} would be found.`
      : "";
    this.path.replaceChildren(
      ...path.flatMap(({ node, tokens: own }, index) => {
        const { texts } = node;
        return [
          index ? h("span.muted", " → ") : "",
          h("strong", visible(texts.slice(0, own).join(""))),
          h("span.muted", visible(texts.slice(own).join("").slice(0, 40))),
        ];
      }),
    );
    Object.assign(this.element.dataset, { tokens, blocks });
  }
}
