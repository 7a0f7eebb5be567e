/** Reads the files of a tar archive in the ustar format, in which names have at most 255 bytes. */

const BLOCK = 512;

/** The files of an archive; their bytes are views of it. */
export function* filesOf(archive: Uint8Array): Generator<{ name: string; bytes: Uint8Array }> {
  const text = (at: number, length: number) => {
    const bytes = archive.subarray(at, at + length);
    const end = bytes.indexOf(0);
    return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
  };
  for (let at = 0; archive[at]; ) {
    const size = Number.parseInt(text(at + 124, 12), 8);
    const prefix = text(at + 345, 155);
    const name = text(at, 100);
    const from = at + BLOCK;
    yield { name: prefix ? `${prefix}/${name}` : name, bytes: archive.subarray(from, from + size) };
    at = from + Math.ceil(size / BLOCK) * BLOCK;
  }
}
