/** One row of memory blocks, labelled by owner; when a request loses its blocks, each says what became of it. */

import type { Block } from "../model/frame.ts";
import { agree } from "../model/words.ts";
import { sentAway } from "./facts.ts";
import type { Layout } from "./layout.ts";
import type { Shown } from "./picture.ts";
import { NAMES, type Run } from "./run.ts";
import type { Sheet } from "./shapes.ts";

/** Blocks beside each other that say the same. */
interface Group {
  from: number;
  to: number;
  words: string;
  isStrong: boolean;
}

const LETTER = 6.4; // px, of a label

/** @param lit the blocks in full colour; null: all */
export function drawMemory(
  sheet: Sheet,
  { run, now, scene }: Shown,
  layout: Layout,
  lit: Set<number> | null,
) {
  const { model } = run;
  const { blocks } = model.frame(now);
  const used = blocks.filter(({ kind }) => kind === "unshared" || kind === "shared").length;
  const kept = blocks.filter(({ kind }) => kind === "cached").length;
  const about = kept ? `${used} used, ${kept} kept` : `${used} of ${blocks.length} blocks`;
  const { left, memory, isNarrow, block, perRow } = layout;
  sheet.isLit = lit === null || lit.size > 0;
  const start = isNarrow ? 0 : left;
  sheet.text("Memory", 0, isNarrow ? memory - 12 : memory + 16, "name");
  sheet.text(about, isNarrow ? 70 : 0, isNarrow ? memory - 12 : memory + 34, "sub");
  const at = (id: number): [x: number, y: number] => [
    start + (id % perRow) * block.pitch,
    memory + Math.floor(id / perRow) * block.row,
  ];
  for (const one of blocks) {
    sheet.isLit = lit === null || lit.has(one.id);
    drawBlock(sheet, run, one, at(one.id), layout);
  }
  const away = scene === 4 ? sentAway(run) : null;
  const former = new Map((away?.step === now ? away.blocks : []).map((one) => [one.id, one]));
  const groups = groupsOf(run, blocks, perRow, former).sort(
    (one, other) => Number(other.isStrong) - Number(one.isStrong),
  );
  const taken: [from: number, to: number, y: number][] = [];
  for (const group of groups) {
    sheet.isLit = lit === null || lit.has(group.from);
    const [x, y] = at(group.from);
    const width = at(group.to)[0] + block.width - x;
    const below = y + block.height;
    if (group.isStrong)
      for (let id = group.from; id <= group.to; id++)
        sheet.rect(at(id)[0] - 2.5, y - 2.5, block.width + 5, block.height + 5, "former");
    if (group.to > group.from) sheet.path(`M${x} ${below + 6.5}H${x + width}`, "cursor");
    // A lost block that has no room for its sentence says the last word of it: who has it now, or that it is kept.
    const variants = group.isStrong ? [group.words, group.words.replace(/.* /, "")] : [group.words];
    for (const words of variants) {
      const long = words.length * LETTER;
      if (long > width + block.pitch * (group.isStrong ? 3 : 0.6)) continue;
      const most = start + perRow * block.pitch - long / 2;
      const middle = Math.max(long / 2, Math.min(x + width / 2, most));
      const [from, to] = [middle - long / 2, middle + long / 2];
      if (taken.some((one) => one[2] === y && from < one[1] && one[0] < to)) continue;
      taken.push([from, to, y]);
      sheet.text(words, middle, below + 19, `label middle${group.isStrong ? " strong" : ""}`);
      break;
    }
  }
}

/** Groups of neighbours in one row; `former`: the blocks that a request has just lost. */
function groupsOf(
  run: Run,
  blocks: Block[],
  perRow: number,
  former: Map<number, { fate: string; to: number | null }>,
) {
  const groups: Group[] = [];
  for (const block of blocks) {
    const lost = former.get(block.id);
    const words = lost ? fateWords(run, lost) : ownerWords(run, block);
    const last = groups.at(-1);
    const isNext = last && last.words === words && block.id % perRow > 0;
    if (isNext && last.isStrong === Boolean(lost)) last.to = block.id;
    else groups.push({ from: block.id, to: block.id, words, isStrong: Boolean(lost) });
  }
  for (const group of groups)
    if (group.isStrong) {
      const number = group.to - group.from + 1;
      const [before, after] = group.words.split("#");
      group.words = before.startsWith("kept")
        ? `${number} ${agree(number, "is", "are")} kept`
        : `${before}${number}${after ?? ""}`;
    }
  return groups;
}

function fateWords(run: Run, { fate, to }: { fate: string; to: number | null }) {
  if (fate === "others") return "the others keep #";
  if (fate === "taken") return `# for ${NAMES[run.placeOf(to)]}`;
  return fate === "cached" ? "kept" : "# free";
}

function ownerWords(run: Run, { kind, owners }: Block) {
  if (kind === "free") return "free";
  if (kind === "cached") return "kept";
  if (owners.length === 4) return "all four";
  const names = owners.map((id) => NAMES[run.placeOf(id)]);
  return names.length === 3 ? `${names[0]}, ${names[1]}, ${names[2]}` : names.join(", ");
}

function drawBlock(
  sheet: Sheet,
  run: Run,
  { kind, owners, filled, slots, mark }: Block,
  [x, y]: [number, number],
  { block: { width, height } }: Layout,
) {
  const isNew = mark ? " newest" : "";
  if (kind === "free") return sheet.rect(x + 0.5, y + 0.5, width - 1, height - 1, "free");
  if (kind === "cached") {
    sheet.rect(x + 0.5, y + 0.5, width - 1, height - 1, "kept");
    return;
  }
  if (kind === "shared") {
    sheet.rect(x + 0.5, y + 0.5, width - 1, height - 1, `shared${isNew}`);
    const part = (width - 8) / Math.max(4, owners.length);
    owners.forEach((id, index) => {
      const tall = height * 0.38;
      sheet.rect(
        x + 4 + index * part,
        y + height - tall,
        part - 1.5,
        tall - 1,
        `hue p${run.placeOf(id)}`,
      );
    });
    return;
  }
  const hue = `p${run.placeOf(owners[0])}`;
  if (filled >= slots) return sheet.rect(x, y, width, height, `hue ${hue}${isNew}`);
  sheet.rect(x + 0.5, y + 0.5, width - 1, height - 1, "free");
  const slot = (width - 5) / slots;
  for (let index = 0; index < slots; index++)
    sheet.rect(
      x + 3 + index * slot,
      y + 3,
      Math.max(1, slot - 1),
      height - 6,
      index < filled ? `hue ${hue}` : "slot",
    );
}
