/** A style sheet is imported as its text; see `build.mjs`. */
declare module "*.css" {
  const css: string;
  export default css;
}
