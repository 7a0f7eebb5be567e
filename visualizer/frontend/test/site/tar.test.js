import assert from "node:assert/strict";
import { test } from "node:test";
import { filesOf } from "../../src/site/tar.ts";

/** A header of the ustar format with only the fields that are read, and the content after it. */
function member(name, prefix, content) {
  const bytes = new Uint8Array(512 + Math.ceil(content.length / 512) * 512);
  const write = (text, at) => bytes.set(new TextEncoder().encode(text), at);
  write(name, 0);
  write(content.length.toString(8).padStart(11, "0"), 124);
  write(prefix, 345);
  write(content, 512);
  return bytes;
}

test("an archive's files have their names and their bytes", () => {
  const long = "n".repeat(100); // fills its field, so that no zero ends it
  const members = [member("core/a.py", "", "x = 1"), member(long, "core/deep", "y".repeat(513))];
  const end = new Uint8Array(1024);
  const archive = new Uint8Array([...members, end].flatMap((one) => [...one]));
  const files = [...filesOf(archive)].map(({ name, bytes }) => [
    name,
    new TextDecoder().decode(bytes),
  ]);
  assert.deepEqual(files, [
    ["core/a.py", "x = 1"],
    [`core/deep/${long}`, "y".repeat(513)],
  ]);
});
