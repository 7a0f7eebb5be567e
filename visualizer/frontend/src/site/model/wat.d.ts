/** WebAssembly text, which the build compiles (`wat.mjs`): the default export is the binary module. */
declare module "*.wat" {
  const bytes: Uint8Array<ArrayBuffer>;
  export default bytes;
}
