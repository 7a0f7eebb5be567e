"""The playground's style sheet. It uses JupyterLab's colours and so follows its light or dark theme."""

STYLE = """<style>
.underglass-playground {
  --ug-ink: var(--jp-content-font-color1, currentColor);
  --ug-muted: var(--jp-content-font-color2, currentColor);
  --ug-line: var(--jp-border-color2, #9ca1ab66);
  overflow: hidden;
  color: var(--ug-ink);
  font-variant-numeric: tabular-nums;
}
.underglass-playground h4 { margin: 6px 0 2px; font-size: 12px; font-weight: 600; line-height: 16px; }
.underglass-words { flex: 1 1 24em; }
.underglass-words p { margin: 8px 0; font-size: 14px; line-height: 20px; }
.underglass-words p[role="alert"] {
  padding-left: 10px; border-left: 3px solid currentColor;
}
.underglass-playground .widget-html-content:has(table) { overflow-x: auto; }
.underglass-numbers { border-collapse: collapse; margin: 0 0 10px; font-size: 13px; line-height: 18px; }
.underglass-numbers th, .underglass-numbers td {
  padding: 2px 0 2px clamp(10px, 1.4vw, 22px); border: 0; background: none;
  text-align: right; white-space: nowrap;
}
.underglass-numbers thead th {
  color: var(--ug-muted); font-size: 11px; font-weight: 400; line-height: 14px;
  vertical-align: bottom; white-space: normal;
}
.underglass-numbers thead small { display: block; font-size: inherit; }
.underglass-numbers tbody th { padding-left: 0; font-weight: 400; text-align: left; }
.underglass-numbers tbody tr { background: none !important; }
.underglass-numbers tbody tr:last-child:not(:first-child) { border-top: 1px solid var(--ug-line); }
.underglass-plots {
  display: grid !important; gap: 8px 16px;
  /* four per row, or two, or one, but never three with one left over */
  grid-template-columns: repeat(
    auto-fit, minmax(max(300px, min(50% - 8px, (1264px - 100%) * 999)), 1fr)
  );
}
.underglass-plots > * { min-width: 0; }
.underglass-plots .gtitle { fill: var(--ug-ink) !important; }
.underglass-stage { display: block !important; position: relative; overflow: visible; }
.underglass-stage > * { width: auto; }
.underglass-stage:not(.underglass-look-back) > :nth-child(2),
.underglass-stage.underglass-look-back > :first-child { display: none; }
</style>"""
