/** The way through the scenes: its list, the scene in sight, and how the page scrolls to one. */

import { h } from "../drawing/html.ts";
import { TITLES } from "./scenes.ts";

export const LAST = 5;

export const sectionOf = (scene: number) =>
  document.querySelector(`#scene-${scene}`) as HTMLElement;

export class Way {
  #root: HTMLElement;
  #stage: HTMLElement;

  /** `go(scene)` is called when a scene is chosen from the list. */
  constructor(root: HTMLElement, go: (scene: number) => void) {
    this.#root = root;
    this.#stage = root.querySelector(".stage") as HTMLElement;
    const items = TITLES.map((title, index) => {
      const chosen = { "data-scene": `${index + 1}`, click: () => go(index + 1) };
      return h("li", h("button", chosen, h("b", `${index + 1}`), ` ${title}`));
    });
    root.querySelector(".way")?.append(h("ol", ...items));
  }

  /** Whether the scenes share one screen. */
  get isPinned() {
    return getComputedStyle(this.#stage).position === "sticky";
  }

  /** How far to scroll from scene to scene. */
  get #stride() {
    return (this.#root.offsetHeight - this.#stage.offsetHeight) / (LAST - 2);
  }

  scrollTo(scene: number) {
    if (this.isPinned && scene < LAST) {
      scrollTo({ top: this.#stride * (scene - 1), behavior: "instant" });
    } else if (scene > 1) sectionOf(scene).scrollIntoView({ behavior: "instant", block: "start" });
    else scrollTo({ top: 0, behavior: "instant" });
  }

  /** The scene that the visitor has scrolled to. */
  get inSight() {
    const top = (scene: number) => sectionOf(scene).getBoundingClientRect().top;
    if (top(LAST) < innerHeight * 0.5) return LAST;
    if (this.isPinned)
      return Math.max(1, Math.min(LAST - 1, 1 + Math.round(scrollY / this.#stride)));
    return Math.max(1, [1, 2, 3, 4].filter((scene) => top(scene) < innerHeight * 0.7).length);
  }

  /** Marks a scene in the list. */
  mark(scene: number) {
    for (const button of this.#root.querySelectorAll<HTMLElement>(".way button")) {
      if (button.dataset.scene === `${scene}`) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
  }
}
