/** Small helpers for HTML. Text is only set as text, so nothing in a log can become markup. */

import { type Description, made } from "../board/patch_children.ts";

/** An attribute that is true is empty; one that is false or has no value is left out. A function listens to its event. */
type Attributes = Record<
  string,
  string | number | boolean | null | undefined | ((event: any) => unknown)
>;
type Child = Node | Description | string | false | null | undefined;
type ElementOf<Name> = Name extends keyof HTMLElementTagNameMap
  ? HTMLElementTagNameMap[Name]
  : Name extends `${infer Tag extends keyof HTMLElementTagNameMap}.${string}`
    ? HTMLElementTagNameMap[Tag]
    : HTMLElement;

/** An element with its classes, its attributes and its children: `h("p.note.muted", { role: "status" }, "words")`. */
export function h<Name extends string>(name: Name, ...parts: (Attributes | Child)[]) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  if (tag === "button") element.setAttribute("type", "button"); // not one that submits a form
  for (const part of parts) {
    if (!part && part !== "") continue;
    if (typeof part === "string" || "nodeType" in part) element.append(part as Node | string);
    else if ("tag" in part) element.append(made(part as Description));
    else
      for (const [key, value] of Object.entries(part))
        if (typeof value === "function") element.addEventListener(key, value);
        else if (value !== false && value != null)
          element.setAttribute(key, value === true ? "" : `${value}`);
  }
  return element as ElementOf<Name>;
}

const told: WeakMap<HTMLElement, Record<string, unknown>> = new WeakMap();

/**
 * Sets `data-` attributes, those that differ from the ones set last: setting an equal one makes the browser look for
 * rules, too. Nothing else may set them.
 */
export function tell(element: HTMLElement, values: Record<string, unknown>) {
  const last = told.get(element) ?? {};
  told.set(element, last);
  for (const name in values)
    if (last[name] !== values[name]) element.dataset[name] = `${(last[name] = values[name])}`;
}

/** Sets the attribute of an element if it differs. */
export function setAttribute(element: Element, name: string, value: string) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Sets the text of an element if it differs. */
export function say(element: Element, words: string) {
  if (element.textContent !== words) element.textContent = words;
}

/** Hides or shows an element, if it is not hidden or shown already. */
export function hide(element: HTMLElement, isHidden: boolean) {
  if (element.hidden !== isHidden) element.hidden = isHidden;
}

/**
 * Calls `changed` in the frame after the size of an element has changed, until `signal` aborts. Not during the frame in
 * which the browser measures: Chromium may never finish a screenshot or a print of a page whose canvases were resized then.
 */
export function onResize(element: Element, changed: () => void, signal: AbortSignal) {
  let frame = 0;
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(changed);
  });
  observer.observe(element);
  signal.addEventListener("abort", () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
  });
}

type Handlers = {
  [Name in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[Name]) => unknown;
};

/** Listens to several events of an element, for as long as it exists. */
export function listen(element: HTMLElement, handlers: Handlers) {
  for (const [name, handler] of Object.entries(handlers))
    element.addEventListener(name, handler as EventListener);
}

/** The place of the pointer in an element, in board pixels. */
export function pointIn(element: Element, event: MouseEvent, unit = 1): [x: number, y: number] {
  const { left, top } = element.getBoundingClientRect();
  return [(event.clientX - left) / unit, (event.clientY - top) / unit];
}

/** What the wheel does over an element while `isOn()`. */
interface Wheel {
  isOn?: () => boolean;
  zooms?: () => boolean; // whether it zooms without Ctrl
  pan: (delta: number) => void; // px, if it turns sideways or with Shift
  zoom: (factor: number, event: WheelEvent) => void;
}

export function onWheel(
  element: HTMLElement,
  { isOn = () => true, zooms = () => false, pan, zoom }: Wheel,
) {
  const turn = (event: WheelEvent) => {
    const { deltaX, deltaY, ctrlKey, metaKey, shiftKey } = event;
    const isSideways = Math.abs(deltaX) > Math.abs(deltaY) || shiftKey;
    if (!isOn() || !(isSideways || ctrlKey || metaKey || zooms())) return;
    event.preventDefault();
    if (isSideways) pan(deltaX || deltaY);
    else zoom(Math.exp(deltaY * 0.004), event);
  };
  element.addEventListener("wheel", turn, { passive: false });
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
