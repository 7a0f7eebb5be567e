/** Grammar helpers. Words are lists of spans, so that a request's name can carry its color. */

/** @typedef {{text: string, bold?: boolean, request?: number}} Span */

/**
 * Template tag that makes spans: `say`${tag} needs ${count(2, "block")}``. A value is a text, a number,
 * a span or a list of spans.
 *
 * @param {TemplateStringsArray} strings
 * @param {(string | number | Span | Span[])[]} values
 * @returns {Span[]}
 */
export function say(strings, ...values) {
  /** @type {Span[]} */
  const spans = [];
  const add = (/** @type {Span} */ span) => {
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

/** @param {Span[]} spans */
export function bold(spans) {
  return spans.map((span) => ({ ...span, bold: true }));
}

/** The text of spans. @param {Span[]} spans */
export function plain(spans) {
  return spans.map((span) => span.text).join("");
}

/** Spans with an upper-case beginning, unless they begin with a name. @param {Span[]} spans */
export function capital([first, ...rest]) {
  if (first.request !== undefined) return [first, ...rest];
  return [{ ...first, text: first.text[0].toUpperCase() + first.text.slice(1) }, ...rest];
}

/** "1 block", "2 blocks". @param {number} number @param {string} noun */
export function count(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

/** "none is", "1 is", "2 are". @param {number} number */
export function are(number) {
  return number === 0 ? "none is" : number === 1 ? "1 is" : `${number} are`;
}

/**
 * The form of a word that agrees with a number, or with as many as a list has.
 *
 * @param {number | any[]} number
 * @param {string} one
 * @param {string} many
 */
export function agree(number, one, many) {
  return (typeof number === "number" ? number : number.length) === 1 ? one : many;
}

/**
 * @template T
 * @param {T[]} items
 * @param {(item: T) => number} value
 */
export function sum(items, value) {
  return items.reduce((total, item) => total + value(item), 0);
}

/**
 * "r1", "r1 and r2", "r1, r2 and r3"; of more than `most` the rest is a number: "r1, r2 and 5 more".
 *
 * @param {(string | Span | Span[])[]} items
 * @param {number} [most]
 * @returns {Span[]}
 */
export function list(items, most = 4) {
  const shown = items.length > most ? items.slice(0, most - 1) : items;
  const rest = items.length - shown.length;
  const parts = rest ? [...shown, `${rest} more`] : shown;
  return parts.flatMap((part, index) => {
    const comma = index === 0 ? "" : index === parts.length - 1 ? " and " : ", ";
    return say`${comma}${part}`;
  });
}

/** "block 7", "blocks 7, 8 and 9". @param {number[]} blocks */
export function blockList(blocks) {
  return `block${blocks.length === 1 ? "" : "s"} ${plain(list(blocks.map(String)))}`;
}

/** "3 unused blocks are freed". A block that is known by its hash may be in use. @param {number} blocks @param {string} [hash] */
export const clearedWords = (blocks, hash) =>
  `${count(blocks, hash ? "block" : "unused block")} ${agree(blocks, "is", "are")} ${hash ? "removed" : "freed"}`;

/** Blocks by the first four digits of their hashes: "b41f and 90d8". @param {string[]} hashes */
export function hashNames(hashes) {
  return plain(
    list(
      hashes.map((hash) => hash.slice(0, 4)),
      6,
    ),
  );
}
