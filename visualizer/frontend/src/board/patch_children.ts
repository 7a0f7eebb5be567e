/**
 * Patches the DOM in place: a browser lays out again what is new, and a step leaves most text as it was. Elements that
 * have the focus or are scrolled stay the same elements.
 *
 * What changes with every step is given as descriptions: comparing them with those of the step before touches the DOM
 * only where they differ, and creates no element that is dropped again.
 */

/** an element that need not exist yet */
export interface Description {
  tag: string;
  attributes: Record<string, string>;
  children: (Description | string)[];
}

type Value = string | number | boolean | null | undefined;
type Part = Description | string | Record<string, Value> | false | null | undefined;

const isDescription = (part: object): part is Description => "tag" in part;

/** Describes an element as `h` makes one: `v("p.note.muted", { role: "status" }, "words")`. */
export function v(name: string, ...parts: Part[]): Description {
  const [tag, ...classes] = name.split(".");
  const attributes: Record<string, string> = classes.length ? { class: classes.join(" ") } : {};
  const children: Description["children"] = [];
  if (tag === "button") attributes.type = "button"; // not one that submits a form
  for (const part of parts) {
    if (typeof part === "string") children.push(part);
    else if (part && isDescription(part)) children.push(part);
    else if (part)
      for (const [key, value] of Object.entries(part))
        if (value !== false && value != null) attributes[key] = value === true ? "" : `${value}`;
  }
  return { tag, attributes, children };
}

/** The descriptions of the elements that were made from one. */
const known: WeakMap<Node, Description> = new WeakMap();

/** Makes the described element. */
export function made(description: Description): HTMLElement {
  const { tag, attributes, children } = description;
  const element = document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  for (const child of children) element.append(typeof child === "string" ? child : made(child));
  known.set(element, description);
  return element;
}

/**
 * Makes the children of `parent` equal to `fresh`, a list of nodes, descriptions and strings; keeps children that are
 * equal already.
 */
export function patchChildren(parent: Element, fresh: (Node | Description | string)[]) {
  let old = parent.firstChild;
  for (const item of fresh) {
    const next = old?.nextSibling ?? null;
    if (!old) parent.append(typeof item === "object" && isDescription(item) ? made(item) : item);
    else if (typeof item === "string") {
      if (old.nodeType !== Node.TEXT_NODE) old.replaceWith(item);
      else if (old.nodeValue !== item) old.nodeValue = item;
    } else if (isDescription(item)) {
      if (!resemble(old as Element, item)) old.replaceWith(made(item));
    } else if (!become(old as Element, item as Element)) old.replaceWith(item);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** Makes an element that was made from a description fit another one; returns false if it cannot. */
function resemble(old: Element, { tag, attributes, children }: Description) {
  const before = known.get(old);
  if (before?.tag !== tag) return false;
  for (const name in before.attributes) if (!(name in attributes)) old.removeAttribute(name);
  for (const name in attributes)
    if (before.attributes[name] !== attributes[name]) old.setAttribute(name, attributes[name]);
  known.set(old, { tag, attributes, children });
  patchChildren(old, children);
  return true;
}

/** Makes an element equal to another of the same kind; returns false if their kinds differ. */
function become(old: Element, node: Element) {
  if (old === node) return true;
  if (old.nodeName !== node.nodeName) return false;
  if (old.isEqualNode(node)) return true;
  if (old.nodeType === Node.TEXT_NODE) {
    old.nodeValue = node.nodeValue;
    return true;
  }
  known.delete(old);
  for (const name of old.getAttributeNames())
    if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const name of node.getAttributeNames()) {
    const value = node.getAttribute(name);
    if (old.getAttribute(name) !== value) old.setAttribute(name, `${value}`);
  }
  patchChildren(old, [...node.childNodes]);
  return true;
}
