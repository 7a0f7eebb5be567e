/** Small helpers for HTML. Text is only set as text, so nothing in a log can become markup. */

/** An element with attributes, and children that are nodes or strings. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number | boolean | null | undefined> = {},
  ...children: (Node | string | null | undefined)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value as string);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export { count as plural } from "../model/words.ts";

/** The nearest element that matches `selector`, from an event's target outwards. */
export function closest({ target }: Event, selector: string) {
  return (target as Element).closest(selector) as HTMLElement | null;
}

/** The element that has the focus, in the document or shadow tree of `node`. */
export function focused(node: Node) {
  const { activeElement } = node.getRootNode() as Document | ShadowRoot;
  return activeElement as HTMLElement | null;
}

/** Makes whitespace visible: newlines as a return arrow, a leading space as a dot. */
export function visible(text: string) {
  return text.replace(/\n/g, "⏎").replace(/^ /, "·");
}
