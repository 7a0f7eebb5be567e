/** The entry points of a comparison: anywidget's `render` for notebooks, and `mountComparison` for pages. */

import type { ShellOptions } from "../board/shell.ts";
import { bytesOf } from "../host/log_bytes.ts";
import { load } from "../host/widget.ts";
import { comparisonInNotebook, drawComparison, type Facts } from "./compare.ts";

interface Options extends Partial<ShellOptions> {
  log: ArrayBufferView;
  compare: { b: string | ArrayBufferView; facts: Facts }; // another log, and the kernel's comparison
  telling?: boolean; // whether the page opens with the tour
}

/** Draws two logs in `host` and returns the page. */
export async function mountComparison(
  host: HTMLElement,
  { log, compare, telling, signal = new AbortController().signal, ...options }: Options,
) {
  const { b, facts } = compare;
  const page = await drawComparison(host, {
    ...options,
    logs: [log, bytesOf(b)],
    facts,
    load,
    signal,
  });
  if (telling) await page.tellMe();
  return page;
}

export const render = comparisonInNotebook(load);
