/** Draws the outputs of cells: those that the build has stored, and those that a run sends. */

import type { Board, BoardState } from "../board/board.ts";
import { h } from "../drawing/html.ts";
import { fetchBytes } from "../host/log_bytes.ts";
import type { Output } from "./python.ts";

const NEAR = "600px"; // boards closer than this to the window are drawn

const root = new URL("../", import.meta.url);

/** @param address relative to the site's root */
const urlOf = (address: string) => new URL(address, root).href;

const bytesOf = async (log: string | Uint8Array) =>
  typeof log === "string" ? fetchBytes(urlOf(log)) : log;

const MODULES = {
  board: () => import("../host/widget.ts").then(({ mount }) => mount),
  comparison: () =>
    import("../compare/mount_comparison.ts").then(({ mountComparison }) => mountComparison),
  cluster: () => import("../cluster/mount_cluster.ts").then(({ mountCluster }) => mountCluster),
};

/** What asks this page's Python about a log: the seat and, of a run of the reader's, the rest of what is told. */
async function inPage(log: Uint8Array, isRun: boolean) {
  const { seatInPage, tellInPage } = await import("./boards.ts");
  return { seat: seatInPage(log), tell: isRun ? tellInPage(log) : undefined };
}

/** What follows a board: told of it once it is drawn, and of each of its changes. */
export interface Follower {
  follow: (board: Board) => void;
  show: (state: BoardState) => void;
}

/** Draws a board in `host` when the reader comes near. */
function boardIn(
  host: HTMLElement,
  { module = "board", log = "", options = {} }: Output,
  signal: AbortSignal,
  follower?: Follower,
) {
  const draw = async () => {
    try {
      const { compare, ...rest } = options;
      const bytes = await bytesOf(log);
      const shown = {
        ...rest,
        log: bytes,
        ...(module === "board" && (await inPage(bytes, log === bytes))),
        ...(compare && { compare: { ...compare, b: await bytesOf(compare.b) } }),
      };
      // The address of a lesson is not that of one of its boards, but it may name a moment of one.
      const own = { address: false, keys: false, signal, ...(await momentOf(host)) };
      const name = module === "board" && compare ? "comparison" : module;
      const mount = (await MODULES[name]()) as (
        host: HTMLElement,
        options: any,
      ) => Promise<unknown>;
      const onChange = (state: BoardState) => follower?.show(state);
      const drawn = await mount(host, { ...shown, ...own, onChange });
      if (name === "board") follower?.follow(drawn as Board);
    } catch (error) {
      if (signal.aborted) return;
      const why = error instanceof Error ? error.message : error;
      host.append(h("p.note", { role: "alert" }, `The board cannot be drawn: ${why}`));
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
 */
async function momentOf(host: HTMLElement) {
  const { readAddress, writeAddress } = await import("../host/address.ts");
  const start = `#${host.closest(".cell")?.id}&`;
  const asked = location.hash.startsWith(start) ? readAddress(location.hash) : {};
  const linkOf = (state: BoardState) =>
    location.href.replace(/#.*/, "") + start + writeAddress(state).replace("#", "");
  return { ...asked, linkOf };
}

/** The outputs of one cell. */
export class OutputArea {
  element: HTMLElement;
  figure: string | undefined;
  onReveal: (place: HTMLElement, key: string) => void;
  follower: Follower | undefined;
  drawn = new AbortController();

  constructor(
    element: HTMLElement,
    {
      figure,
      onReveal,
      follower,
    }: {
      figure?: string;
      onReveal: (place: HTMLElement, key: string) => void;
      follower?: Follower;
    },
  ) {
    this.element = element;
    this.figure = figure;
    this.onReveal = onReveal;
    this.follower = follower;
    for (const place of element.querySelectorAll("[data-board]") as NodeListOf<HTMLElement>)
      boardIn(place, JSON.parse(place.dataset.board ?? ""), this.drawn.signal, follower);
    for (const place of element.querySelectorAll("[data-reveal]") as NodeListOf<HTMLElement>)
      onReveal(place, place.dataset.reveal ?? "");
  }

  clear() {
    this.drawn.abort();
    this.drawn = new AbortController();
    // A question and its buttons stay: the reader's guess belongs to the page.
    for (const child of [...this.element.children]) if (!child.matches("form")) child.remove();
  }

  add(output: Output) {
    const { element } = this;
    const last = element.lastElementChild as HTMLElement | null;
    const { kind, text = "", stream = "" } = output;
    if (kind === "text" && last?.dataset.stream === stream) last.append(text);
    else element.append(...this.draw(output));
  }

  draw(output: Output): Node[] {
    switch (output.kind) {
      case "text":
        return [h("pre", { "data-stream": output.stream }, output.text ?? "")];
      case "html": {
        const box = h("div.html");
        box.innerHTML = output.html ?? ""; // from the reader's own run
        return [box];
      }
      case "board": {
        const host = h("div.board");
        boardIn(host, output, this.drawn.signal, this.follower);
        return [host];
      }
      case "reveal": {
        const place = h("div", { "data-reveal": output.key });
        this.onReveal(place, output.key ?? "");
        return [place];
      }
      case "figure":
        return this.figure ? [storedFigure(this.figure)] : [];
      case "error":
        return [drawError(output)];
      default:
        return []; // a question: it is on the page
    }
  }
}

const storedFigure = (src: string) =>
  h(
    "figure",
    h("img", { src: urlOf(src), alt: "", loading: "lazy" }),
    h(
      "figcaption.note",
      "Plotly drew this picture when the lesson was written. It does not follow your changes here.",
    ),
  );

function drawError({ name, message, trace, line }: Output) {
  const where = line ? `Line ${line}: ` : "";
  return h(
    "div.error",
    { role: "alert" },
    h("p", h("strong", `${where}${name}`), message ? `: ${message}` : ""),
    h("details", h("summary", "Traceback"), h("pre", trace ?? "")),
  );
}
