/** The picture as data: shapes of an SVG, so that Node can test what is drawn. */

export interface Shape {
  tag: "rect" | "path" | "text";
  at: Record<string, string | number>;
  text?: string;
}

/** Collects shapes; `isLit` says whether what follows has its full colour. */
export class Sheet {
  shapes: Shape[] = [];
  isLit = true;

  rect(x: number, y: number, width: number, height: number, names: string, more: Shape["at"] = {}) {
    if (width <= 0 || height <= 0) return;
    this.#add(
      "rect",
      { x: short(x), y: short(y), width: short(width), height: short(height), ...more },
      names,
    );
  }

  path(d: string, names: string) {
    this.#add("path", { d }, names);
  }

  /** Text whose base line is at y. */
  text(text: string, x: number, y: number, names = "") {
    this.#add("text", { x: short(x), y: short(y) }, names, text);
  }

  #add(tag: Shape["tag"], at: Shape["at"], names: string, text?: string) {
    const words = [names, this.isLit ? "" : "dim"].filter(Boolean).join(" ");
    this.shapes.push({
      tag,
      at: words ? { ...at, class: words } : at,
      ...(text === undefined ? {} : { text }),
    });
  }
}

/** A number with at most one decimal. */
const short = (value: number) => Math.round(value * 10) / 10;

/** The part of a text that fits, by a usual letter's width. */
export function fitting(text: string, width: number, letter: number) {
  const most = Math.floor(width / letter);
  return text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
}

const SVG = "http://www.w3.org/2000/svg";

/** Draws shapes into an SVG: elements of the same kind stay, so that only what has changed moves. */
export function draw(svg: SVGElement, shapes: Shape[]) {
  const old = [...svg.querySelectorAll<SVGElement>(":scope > :not(defs)")];
  shapes.forEach((shape, index) => {
    let element = old[index];
    if (element?.tagName !== shape.tag) {
      const fresh = document.createElementNS(SVG, shape.tag) as SVGElement;
      if (element) element.replaceWith(fresh);
      else svg.append(fresh);
      element = fresh;
    }
    for (const name of element.getAttributeNames())
      if (!(name in shape.at)) element.removeAttribute(name);
    for (const [name, value] of Object.entries(shape.at))
      if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, `${value}`);
    if (element.textContent !== (shape.text ?? "")) element.textContent = shape.text ?? "";
  });
  for (const element of old.slice(shapes.length)) element.remove();
}
