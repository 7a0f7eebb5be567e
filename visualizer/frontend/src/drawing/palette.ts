/**
 * Colours. A hue identifies a request, together with a texture: see `marks.ts`. Events are shown by form, never by
 * colour.
 *
 * The ten hues of a theme are at least 11 apart (CIEDE2000, all pairs) for normal, protan, deutan and
 * tritan eyes and have at least 3:1 contrast on the ground.
 */

/** a palette; colours as "#rrggbb" */
export interface Theme {
  name: "light" | "dark";
  ground: string;
  ink: string;
  muted: string;
  faint: string;
  rule: string;
  band: string;
  shared: string;
  sharedBorder: string;
  used: string;
  hatch: string;
  lost: string; // time that a request lost
  hues: string[];
}

const words = (text: string) => text.split(" ");

export const THEMES: Record<"light" | "dark", Theme> = {
  light: {
    name: "light",
    ground: "#ffffff",
    ink: "#16181d",
    muted: "#5a606b",
    faint: "#8a909c",
    rule: "#d9dce2",
    band: "#f5f6f8",
    shared: "#dde0e6",
    sharedBorder: "#7d8490",
    used: "#969ca8",
    hatch: "#7d8490",
    lost: "#c23b26",
    hues: words("#293ec1 #cf7f22 #006942 #8b1868 #836900 #0ea493 #9b79fd #de3460 #1f78b2 #92081a"),
  },
  dark: {
    name: "dark",
    ground: "#14161a",
    ink: "#eceef2",
    muted: "#a5abb6",
    faint: "#7b828e",
    rule: "#33373f",
    band: "#1f2228",
    shared: "#3b4049",
    sharedBorder: "#8d94a0",
    used: "#6b727e",
    hatch: "#8d94a0",
    lost: "#ef6f5a",
    hues: words("#6374ff #ef9206 #87bd7e #c65b93 #f0e175 #30f6e8 #d4a7ff #e64031 #3ca0bd #feaec6"),
  },
};
