/** Small helpers for HTML. Text is only set as text, so nothing in a log can become markup. */

/** An element with attributes, and children that are nodes or strings. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export { count as plural } from "../model/words.js";

/** Makes whitespace visible: newlines as a return arrow, a leading space as a dot. */
export function visible(text) {
  return text.replace(/\n/g, "⏎").replace(/^ /, "·");
}
