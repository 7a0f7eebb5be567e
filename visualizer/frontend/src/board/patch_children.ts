/**
 * Patches the DOM in place: a browser lays out again what is new, and a step leaves most text as it was.
 * Elements that have the focus or are scrolled stay the same elements.
 */

/**
 * Makes the children of `parent` equal to `fresh`, a list of nodes and strings; keeps children that are equal already.
 */
export function patchChildren(parent: Element, fresh: (Node | string)[]) {
  let old = parent.firstChild;
  for (const item of fresh) {
    const node = typeof item === "string" ? document.createTextNode(item) : item;
    const next = old?.nextSibling ?? null;
    if (!old) parent.append(node);
    else if (!become(old as Element, node as Element)) old.replaceWith(node);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** Makes a node, an element or a text, equal to another of the same kind; returns false if their kinds differ. */
function become(old: Element, node: Element) {
  if (old.nodeName !== node.nodeName) return false;
  if (old.isEqualNode(node)) return true;
  if (old.nodeType === Node.TEXT_NODE) {
    old.nodeValue = node.nodeValue;
    return true;
  }
  for (const name of old.getAttributeNames())
    if (!node.hasAttribute(name)) old.removeAttribute(name);
  for (const name of node.getAttributeNames()) {
    const value = node.getAttribute(name);
    if (old.getAttribute(name) !== value) old.setAttribute(name, `${value}`);
  }
  patchChildren(old, [...node.childNodes]);
  return true;
}
