import { readFile } from "node:fs/promises";
import { transform } from "esbuild";

/** An esbuild plugin: a module that imports a style sheet gets its text, minified. */
export function styleSheetAsText({ onLoad }) {
  onLoad({ filter: /\.css$/ }, async ({ path }) => {
    const source = await readFile(path, "utf8");
    const { code: css } = await transform(source, { loader: "css", minify: true });
    return { contents: css, loader: "text" };
  });
}
