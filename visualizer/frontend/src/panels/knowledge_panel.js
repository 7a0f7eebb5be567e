/** "What this log knows": the facts of a foreign log, recorded, inferred and unknown, in words. */

/** @import { Model } from "../model/model.js" */
import { h } from "../drawing/html.js";
import { levelDot } from "../drawing/words_html.js";
import { factsAt, knowledgeWords, LEVELS } from "../model/knowledge.js";

/** Fills the panel; a log of our own engine needs none. @param {HTMLElement} panel @param {Model} model */
export function writeKnowledge(panel, model) {
  const { engine = "", recorder = "" } = model.source;
  const { title, source, legend, facts } = knowledgeWords;
  const origin = source.replace("{engine}", engine).replace("{recorder}", recorder);
  const rows = LEVELS.map((level) =>
    h(
      "tr",
      { "data-level": level },
      h("th", { scope: "row" }, levelDot(level), level),
      h(
        "td",
        {},
        factsAt(model, level)
          .map((fact) => facts[fact])
          .join(", ") || "none",
      ),
    ),
  );
  panel.hidden = !engine;
  panel.replaceChildren(
    h("h2", {}, title, h("span", { class: "count" }, `${origin}. ${legend}`)),
    h("table", {}, ...rows),
  );
}
