/** The live requests in groups, below the lanes, if there are more of them than marks. A group opens to a list. */

import { Part } from "../board/part.ts";
import { patchChildren, v } from "../board/patch_children.ts";
import { closest, h, hide, plural, visible } from "../drawing/html.ts";
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
    hide(this.element, live <= Math.max(lanes, MARKS));
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
    patchChildren(this.list, left.length ? [...rows, v("p.note.muted", more)] : rows);
  }

  row(group: Group, most: number) {
    const { name, running, waiting } = group;
    const isOpen = this.open.has(name);
    const parts = Object.entries({ running, waiting }).map(([kind, ids]) =>
      v("i", { class: kind, style: `width: ${(100 * ids.length) / most}%` }),
    );
    const bar = v("span.sizes", { "aria-hidden": "true" }, ...parts);
    const words = [`${running.length} running`, `${waiting.length} waiting`].join(", ");
    const head = v(
      "button.group",
      { "data-group": name, "aria-expanded": String(isOpen) },
      v("span.cut", { title: name }, `${isOpen ? "▾" : "▸"} ${visible(name)}`),
      bar,
      v("span.muted", words),
    );
    if (!isOpen) return v("div", head);
    const ids = [...running, ...waiting];
    const chips = ids.slice(0, MOST_CHIPS).map((id) => chip(id, this.board.context()));
    const rest = ids.length - chips.length;
    return v("div", head, v("p.chips.flow", ...chips, rest > 0 ? `and ${rest} more` : ""));
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
