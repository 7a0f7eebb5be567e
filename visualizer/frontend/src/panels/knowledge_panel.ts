/** "What this log knows": the facts of a foreign log, recorded, inferred and unknown, in words. */

import { h } from "../drawing/html.ts";
import { levelDot } from "../drawing/words_html.ts";
import { factsAt, knowledgeWords, LEVELS } from "../model/knowledge.ts";
import type { Model } from "../model/model.ts";

/** Fills the panel; a log of our own engine needs none. */
export function writeKnowledge(panel: HTMLElement, model: Model) {
  const { engine = "", recorder = "" } = model.source;
  const { title, source, legend, facts } = knowledgeWords;
  const origin = source.replace("{engine}", engine).replace("{recorder}", recorder);
  const rows = LEVELS.map((level) =>
    h(
      "tr",
      { "data-level": level },
      h("th", { scope: "row" }, levelDot(level), level),
      h(
        "td.muted",
        factsAt(model, level)
          .map((fact) => facts[fact])
          .join(", ") || "none",
      ),
    ),
  );
  panel.hidden = !engine;
  panel.replaceChildren(
    h("h2", title, h("span.count.small.muted", `${origin}. ${legend}`)),
    h("table", ...rows),
  );
}
