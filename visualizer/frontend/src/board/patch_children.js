/**
 * Patches the DOM in place: a browser lays out again what is new, and a step leaves most text as it was.
 * Elements that have the focus or are scrolled stay the same elements.
 */

/**
 * Makes the children of `parent` equal to `fresh`, a list of nodes and strings; keeps children that are equal already.
 *
 * @param {Node} parent @param {(Node | string)[]} fresh
 */
export function patchChildren(parent, fresh) {
  let old = parent.firstChild;
  for (const item of fresh) {
    const node = typeof item === "string" ? document.createTextNode(item) : item;
    const next = old?.nextSibling ?? null;
    if (!old) parent.appendChild(node);
    else if (!become(old, node)) parent.replaceChild(node, old);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    parent.removeChild(old);
    old = next;
  }
}

/**
 * Makes a node equal to another of the same kind; returns false if their kinds differ.
 *
 * @param {Node} old @param {Node} node
 */
function become(old, node) {
  if (old.nodeName !== node.nodeName) return false;
  if (old.isEqualNode(node)) return true;
  if (!(old instanceof Element && node instanceof Element)) {
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
