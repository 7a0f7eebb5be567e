/** Draws the outputs of cells: those that the build has stored, and those that a run sends. */

/** @import { Output } from "./python.js" */
import { h } from "../drawing/html.js";

const NEAR = "600px"; // boards closer than this to the window are drawn

const root = new URL("../", import.meta.url);

/** @param {string} address  relative to the site's root */
export const urlOf = (address) => new URL(address, root).href;

/** @param {string | Uint8Array} log */
async function bytesOf(log) {
  if (typeof log !== "string") return log;
  const response = await fetch(urlOf(log));
  if (!response.ok) throw new Error(`${log}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** @param {Uint8Array} bytes */
const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));

const MODULES = {
  board: () => import("../host/widget.js").then(({ mount }) => mount),
  cluster: () => import("../cluster/mount_cluster.js").then(({ mountCluster }) => mountCluster),
};

/**
 * Draws a board in `host` when the reader comes near.
 *
 * @param {HTMLElement} host @param {Output} output @param {AbortSignal} signal
 */
export function boardIn(host, { module = "board", log = "", options = {} }, signal) {
  const draw = async () => {
    try {
      const { compare, ...rest } = options;
      const other = compare && (await bytesOf(compare.b));
      const shown = {
        ...rest,
        log: await bytesOf(log),
        ...(compare && { compare: { ...compare, b: base64(other) } }),
      };
      // The address of a lesson is not that of one of its boards, but it may name a moment of one.
      const own = { address: false, keys: false, signal, ...(await momentOf(host)) };
      const mount = /** @type {(host: HTMLElement, options: any) => Promise<unknown>} */ (
        await MODULES[module]()
      );
      await mount(host, { ...shown, ...own });
    } catch (error) {
      if (signal.aborted) return;
      const why = error instanceof Error ? error.message : error;
      host.append(h("p", { class: "note", role: "alert" }, `The board cannot be drawn: ${why}`));
    }
  };
  const near = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      near.disconnect();
      draw();
    },
    { rootMargin: NEAR },
  );
  near.observe(host);
  signal.addEventListener("abort", () => near.disconnect());
}

/**
 * The moment that the page's address names if it is in this board (#cell-12&step=30&select=8), and how the board
 * makes such addresses.
 *
 * @param {HTMLElement} host
 */
async function momentOf(host) {
  const { readAddress, writeAddress } = await import("../host/address.js");
  const start = `#${host.closest(".cell")?.id}&`;
  const asked = location.hash.startsWith(start) ? readAddress(location.hash) : {};
  /** @param {import("../board/board.js").BoardState} state */
  const linkOf = (state) =>
    location.href.replace(/#.*/, "") + start + writeAddress(state).replace("#", "");
  return { ...asked, linkOf };
}

/** The outputs of one cell. */
export class OutputArea {
  /**
   * @param {HTMLElement} element
   * @param {{figure?: string, onReveal: (place: HTMLElement, key: string) => void}} options
   */
  constructor(element, { figure, onReveal }) {
    this.element = element;
    this.figure = figure;
    this.onReveal = onReveal;
    this.drawn = new AbortController();
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (
      element.querySelectorAll("[data-board]")
    ))
      boardIn(place, JSON.parse(place.dataset.board ?? ""), this.drawn.signal);
    for (const place of /** @type {NodeListOf<HTMLElement>} */ (
      element.querySelectorAll("[data-reveal]")
    ))
      onReveal(place, place.dataset.reveal ?? "");
  }

  clear() {
    this.drawn.abort();
    this.drawn = new AbortController();
    // A question and its buttons stay: the reader's guess belongs to the page.
    for (const child of [...this.element.children]) if (!child.matches("form")) child.remove();
  }

  /** @param {Output} output */
  add(output) {
    const { element } = this;
    const last = /** @type {HTMLElement | null} */ (element.lastElementChild);
    const { kind, text = "", stream = "" } = output;
    if (kind === "text" && last?.dataset.stream === stream) last.append(text);
    else if (kind === "progress" && last?.matches(".progress")) last.replaceWith(progress(output));
    else element.append(...this.draw(output));
  }

  /** @param {Output} output @returns {Node[]} */
  draw(output) {
    switch (output.kind) {
      case "text":
        return [h("pre", { "data-stream": output.stream }, output.text ?? "")];
      case "html": {
        const box = h("div", { class: "html" });
        box.innerHTML = output.html ?? ""; // from the reader's own run
        return [box];
      }
      case "board": {
        const host = h("div", { class: "board" });
        boardIn(host, output, this.drawn.signal);
        return [host];
      }
      case "reveal": {
        const place = h("div", { "data-reveal": output.key });
        this.onReveal(place, output.key ?? "");
        return [place];
      }
      case "figure":
        return this.figure ? [storedFigure(this.figure)] : [];
      case "progress":
        return [progress(output)];
      case "error":
        return [drawError(output)];
      default:
        return []; // a question: it is on the page
    }
  }
}

/** @param {string} src */
const storedFigure = (src) =>
  h(
    "figure",
    {},
    h("img", { src: urlOf(src), alt: "", loading: "lazy" }),
    h(
      "figcaption",
      { class: "note" },
      "Plotly drew this picture when the lesson was written. It does not follow your changes here.",
    ),
  );

/** @param {Output} output */
function progress({ words, unit, done = 0, total }) {
  const said = [words, total ? `${done} of ${total}` : `${done}`, unit].filter(Boolean).join(" ");
  const bar = total ? h("progress", { max: total, value: done, "aria-label": said }) : null;
  return h("p", { class: "progress note" }, bar, ` ${said}`);
}

/** @param {Output} output */
function drawError({ name, message, trace, line }) {
  const where = line ? `Line ${line}: ` : "";
  return h(
    "div",
    { class: "error", role: "alert" },
    h("p", {}, h("strong", {}, `${where}${name}`), message ? `: ${message}` : ""),
    h("details", {}, h("summary", {}, "Traceback"), h("pre", {}, trace ?? "")),
  );
}
