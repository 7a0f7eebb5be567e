/** Grammar helpers. Words are lists of spans, so that a request's name can carry its color. */

export type Span = { text: string; bold?: boolean; request?: number };

/**
 * Template tag that makes spans: `say`${tag} needs ${count(2, "block")}``. A value is a text, a number,
 * a span or a list of spans.
 */
export function say(
  strings: TemplateStringsArray,
  ...values: (string | number | Span | Span[])[]
): Span[] {
  const spans: Span[] = [];
  const add = (span: Span) => {
    const last = spans[spans.length - 1];
    const joins = last && last.request === undefined && span.request === undefined;
    if (joins && !last.bold === !span.bold) last.text += span.text;
    else if (span.text) spans.push({ ...span });
  };
  strings.forEach((text, index) => {
    add({ text });
    const value = values[index];
    if (value === undefined) return;
    if (typeof value === "object") [value].flat().forEach(add);
    else add({ text: String(value) });
  });
  return spans;
}

export function bold(spans: Span[]) {
  return spans.map((span) => ({ ...span, bold: true }));
}

/** The text of spans. */
export function plain(spans: Span[]) {
  return spans.map((span) => span.text).join("");
}

/** Spans with an upper-case beginning, unless they begin with a name. */
export function capital([first, ...rest]: Span[]) {
  if (first.request !== undefined) return [first, ...rest];
  return [{ ...first, text: first.text[0].toUpperCase() + first.text.slice(1) }, ...rest];
}

/** A whole number with commas: "9,800". */
export const digits = (number: number) => number.toLocaleString("en");

/** "1 block", "2 blocks". */
export function count(number: number, noun: string) {
  return `${digits(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** "none is", "1 is", "2 are". */
export function are(number: number) {
  return number === 0 ? "none is" : number === 1 ? "1 is" : `${number} are`;
}

/** The form of a word that agrees with a number, or with as many as a list has. */
export function agree(number: number | readonly unknown[], one: string, many: string) {
  return (typeof number === "number" ? number : number.length) === 1 ? one : many;
}

export function sum<T>(items: T[], value: (item: T) => number) {
  return items.reduce((total, item) => total + value(item), 0);
}

/** "r1", "r1 and r2", "r1, r2 and r3"; of more than `most` the rest is a number: "r1, r2 and 5 more". */
export function list(items: (string | Span | Span[])[], most: number = 4): Span[] {
  const shown = items.length > most ? items.slice(0, most - 1) : items;
  const rest = items.length - shown.length;
  const parts = rest ? [...shown, `${rest} more`] : shown;
  return parts.flatMap((part, index) => {
    const comma = index === 0 ? "" : index === parts.length - 1 ? " and " : ", ";
    return say`${comma}${part}`;
  });
}

/** "block 7", "blocks 7, 8 and 9". */
export function blockList(blocks: number[]) {
  return `block${blocks.length === 1 ? "" : "s"} ${plain(list(blocks.map(String)))}`;
}

/** "3 unused blocks are freed". A block that is known by its hash may be in use. */
export const clearedWords = (blocks: number, hash?: string | null) =>
  `${count(blocks, hash ? "block" : "unused block")} ${agree(blocks, "is", "are")} ${hash ? "removed" : "freed"}`;

/** Blocks by the first four digits of their hashes: "b41f and 90d8". */
export function hashNames(hashes: string[]) {
  return plain(
    list(
      hashes.map((hash) => hash.slice(0, 4)),
      6,
    ),
  );
}
