"""The template of the page: one HTML file that contains its style and refers to nothing outside."""

from string import Template

from thalweg.plot.style import DARK, LIGHT, Theme


def _colours(theme: Theme) -> str:
    names = ("paper", "ink", "muted", "grid", "data", "samples")
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in names)


STYLE = (
    f":root {{ {_colours(LIGHT)} --page: #f4f5f7; }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {_colours(DARK)} --page: #0f1218; }} }}\n"
    """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.55;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }
.kind { margin: 0; color: var(--muted); font-size: 14px; letter-spacing: 0.04em; }
h1 { margin: 0 0 14px; font-size: 32px; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 0 0 6px; font-size: 20px; }
.lead { margin: 0 0 20px; font-size: 18px; max-width: 60em; }
.findings { margin: 0 0 20px; padding: 12px 16px; background: var(--paper); border: 1px solid var(--grid);
  border-left: 5px solid var(--samples); border-radius: 10px; }
.findings ul { margin: 6px 0 0; padding-left: 20px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0 0 16px; }
.tile, section { background: var(--paper); border: 1px solid var(--grid); border-radius: 10px; }
.tile { padding: 12px 16px; margin: 0; }
.tile dt { color: var(--muted); font-size: 13px; }
.tile dd { margin: 0; font-size: 24px; font-weight: 600; font-variant-numeric: tabular-nums; }
.tile dd small { display: block; color: var(--muted); font-size: 13px; font-weight: 400; }
section { padding: 20px 24px; margin: 0 0 16px; }
section > p { margin: 0 0 12px; color: var(--muted); max-width: 60em; }
section > p.missing { color: var(--ink); border-left: 3px solid var(--samples); padding-left: 12px; }
img { display: block; width: 100%; height: auto; }
img.narrow { max-width: 480px; }
pre { margin: 0; padding: 14px 16px; overflow-x: auto; background: var(--page); border-radius: 8px; font-size: 13.5px;
  line-height: 1.5; font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: 5px 16px 5px 0; border-bottom: 1px solid var(--grid); }
th { font-weight: 500; color: var(--muted); white-space: nowrap; }
td { overflow-wrap: anywhere; }
.evaluation td:nth-child(2), .evaluation td:nth-child(3) { white-space: nowrap; }
footer { color: var(--muted); font-size: 14px; }
@media print { body { background: none; } section, .tile { break-inside: avoid; } }
"""
)

PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
$style</style>
</head>
<body>
<main>
<header>
<p class="kind">Thalweg, report of a run</p>
<h1>$title</h1>
$findings
$lead
$tiles
</header>
$sections
<footer>$versions</footer>
</main>
</body>
</html>
"""
)
