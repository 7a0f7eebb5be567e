/** The live requests in groups, below the lanes, if there are more of them than marks. A group opens to a list. */

import { Part } from "../board/part.ts";
import { patchChildren } from "../board/patch_children.ts";
import { closest, h, plural, visible } from "../drawing/html.ts";
import { chip } from "../drawing/words_html.ts";
import { GROUPINGS, type Group, type Grouping, groupsOf, sizeOf } from "../model/groups.ts";
import { MARKS } from "../model/lanes.ts";

const MOST_GROUPS = 12;
const MOST_CHIPS = 60;

export class GroupsBox extends Part {
  by: Grouping = "label";
  /** The names of the open groups. */
  open: Set<string> = new Set();
  count = h("span.count.small.muted");
  choices = GROUPINGS.map((by) => h("button", { "data-group-by": by }, `by ${by}`));
  list = h("div");
  element = h(
    "div.groups",
    {
      hidden: true,
      role: "group",
      "aria-label": "Live requests",
      click: (event) => this.clicked(event),
    },
    h("div.head.flow", h("h2", "Live requests", this.count), h("div.sorts", ...this.choices)),
    this.list,
  );

  /** Writes the groups, if there are more live requests than marks, and than the `lanes` in sight. */
  show(lanes: number) {
    const { board, by } = this;
    const { frame } = board;
    const live = frame.running.length + frame.waiting.length;
    this.element.hidden = live <= Math.max(lanes, MARKS);
    if (this.element.hidden) return;
    const groups = groupsOf(frame, by);
    this.count.textContent = `${live} in ${plural(groups.length, "group")}, ${lanes} lanes in sight`;
    for (const choice of this.choices)
      choice.setAttribute("aria-pressed", String(choice.dataset.groupBy === by));
    const most = Math.max(...groups.map(sizeOf));
    const rows = groups.slice(0, MOST_GROUPS).map((group) => this.row(group, most));
    const left = groups.slice(MOST_GROUPS);
    const rest = left.reduce((sum, group) => sum + sizeOf(group), 0);
    const more = `and ${plural(left.length, "group")} with ${plural(rest, "request")}`;
    patchChildren(this.list, left.length ? [...rows, h("p.note.muted", more)] : rows);
  }

  row(group: Group, most: number) {
    const { name, running, waiting } = group;
    const isOpen = this.open.has(name);
    const bar = h("span.sizes", { "aria-hidden": "true" });
    for (const [kind, ids] of Object.entries({ running, waiting })) {
      const part = h("i", { class: kind });
      part.style.width = `${(100 * ids.length) / most}%`;
      bar.append(part);
    }
    const words = [`${running.length} running`, `${waiting.length} waiting`].join(", ");
    const head = h(
      "button.group",
      { "data-group": name, "aria-expanded": String(isOpen) },
      h("span.cut", { title: name }, `${isOpen ? "▾" : "▸"} ${visible(name)}`),
      bar,
      h("span.muted", words),
    );
    if (!isOpen) return h("div", head);
    const ids = [...running, ...waiting];
    const chips = ids.slice(0, MOST_CHIPS).map((id) => chip(id, this.board.context()));
    const rest = ids.length - chips.length;
    return h("div", head, h("p.chips.flow", ...chips, rest > 0 ? `and ${rest} more` : ""));
  }

  clicked(event: Event) {
    const { group } = closest(event, "[data-group]")?.dataset ?? {};
    const by = closest(event, "[data-group-by]")?.dataset.groupBy as Grouping | undefined;
    if (by) {
      this.by = by;
      this.open.clear();
    } else if (group === undefined) return;
    else if (!this.open.delete(group)) this.open.add(group);
    this.board.render();
  }
}
