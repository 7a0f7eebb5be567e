/** Small helpers for HTML. Text is only set as text, so nothing in a log can become markup. */

/**
 * An element with attributes, and children that are nodes or strings.
 *
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes]
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null)
      element.setAttribute(name, /** @type {string} */ (value));
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export { count as plural } from "../model/words.js";

/**
 * The nearest element that matches `selector`, from an event's target outwards.
 *
 * @param {Event} event @param {string} selector
 */
export function closest({ target }, selector) {
  return /** @type {HTMLElement | null} */ (/** @type {Element} */ (target).closest(selector));
}

/** The element that has the focus, in the document or shadow tree of `node`. @param {Node} node */
export function focused(node) {
  const { activeElement } = /** @type {Document | ShadowRoot} */ (node.getRootNode());
  return /** @type {HTMLElement | null} */ (activeElement);
}

/** Makes whitespace visible: newlines as a return arrow, a leading space as a dot. @param {string} text */
export function visible(text) {
  return text.replace(/\n/g, "⏎").replace(/^ /, "·");
}
