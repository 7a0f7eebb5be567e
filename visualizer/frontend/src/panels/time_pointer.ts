/**
 * Pointer events over strip, lanes and axis.
 *
 * Dragging on strip or axis moves the cursor; on zoomed lanes it moves the window. With Shift it selects a
 * range of steps. With Ctrl, or by a pinch, the wheel zooms at the pointer. On the strip and the axis
 * of a board that has the focus it zooms without Ctrl. Anywhere else the page scrolls.
 */

import { describeLane } from "../board/descriptions.ts";
import { focused, onWheel } from "../drawing/html.ts";
import type { View } from "../drawing/time_axis.ts";
import type { Place, TimePanel } from "./time_panel.ts";

interface Drag {
  kind: "click" | "brush" | "scrub" | "pan" | "scrub lanes";
  from: Place;
  x: number; // of the pointer when it began
  view: View; // the window then
  moved: boolean;
}

const SLOP = 4; // px that a pointer may move during a click

/** Binds the pointer on the canvases of a timeline. */
export function listenToPointer(panel: TimePanel) {
  const { board, strip, overlap, lanes, band, axis } = panel;
  const { store, tooltip } = board;
  for (const canvas of [strip, overlap, lanes, band, axis]) {
    let drag: Drag | null = null;
    const on = <K extends keyof HTMLElementEventMap>(
      name: K,
      handler: (event: HTMLElementEventMap[K]) => void,
    ) => canvas.addEventListener(name, (event) => panel.model && handler(event));
    on("pointerdown", (event) => {
      if (event.button !== 0) return;
      const from = panel.locate(event, canvas);
      const kind = !from.inPlot
        ? "click"
        : event.shiftKey
          ? "brush"
          : canvas !== lanes
            ? "scrub"
            : panel.isZoomed
              ? "pan"
              : "scrub lanes";
      drag = { kind, from, x: event.clientX, view: panel.view, moved: false };
      if (!from.inPlot) return;
      canvas.setPointerCapture(event.pointerId);
      if (kind === "scrub") board.goTo(from.step);
      if (kind === "brush") board.brush(from.step, from.step);
    });
    on("pointermove", (event) => {
      const place = panel.locate(event, canvas);
      if (drag && Math.abs(event.clientX - drag.x) > SLOP) drag.moved = true;
      const dragging = drag?.from.inPlot && (drag.moved || drag.kind === "scrub") ? drag : null;
      if (dragging?.kind.startsWith("scrub")) board.goTo(place.step);
      if (dragging?.kind === "brush") board.brush(dragging.from.step, place.step);
      if (dragging?.kind === "pan") {
        panel.panFrom(dragging.view, (dragging.x - event.clientX) / board.unit / panel.scale.per);
      }
      canvas.style.cursor = cursorFor(canvas === lanes, place, dragging?.kind);
      const onLanes = canvas === lanes;
      const describe = () =>
        describeLane(panel.model, store.step, panel.locate(event, canvas), onLanes);
      tooltip.show(event, dragging ? null : describe);
    });
    on("pointerup", () => {
      const clicked = drag && !drag.moved && canvas === lanes && drag.kind !== "brush";
      if (clicked && drag?.from.span) board.select(drag.from.span.id);
      drag = null;
    });
    on("pointercancel", () => (drag = null));
    on("dblclick", (event) => {
      const place = panel.locate(event, canvas);
      if (place.inPlot) board.goTo(place.step);
    });
    on("pointerleave", () => tooltip.hide());
    onWheel(canvas, {
      isOn: () => !!panel.model && panel.long,
      zooms: () => canvas !== lanes && board.root.contains(focused(board.root)),
      pan: (delta) => panel.panFrom(panel.view, delta / board.unit / panel.scale.per),
      zoom: (factor, event) =>
        panel.zoom(factor, panel.scale.placeAt(panel.locate(event, lanes).x)),
    });
  }
}

function cursorFor(onLanes: boolean, place: Place, dragging: Drag["kind"] | undefined) {
  if (dragging === "pan") return "grabbing";
  if (!onLanes) return place.inPlot ? "ew-resize" : "";
  return place.span ? "pointer" : "";
}
