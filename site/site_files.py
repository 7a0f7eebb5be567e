"""Write the files that are not pages: the icon, the style sheet, and the files for search engines."""

from site_pages import REPOSITORY, Site

_ASSETS = REPOSITORY / "site" / "assets"
_STYLES = REPOSITORY / "visualizer" / "frontend" / "src" / "site" / "site.css"


def build(site: Site) -> None:
    """Write the assets that need no bundling."""
    for path in sorted(_ASSETS.iterdir()):
        site.copy(path, f"assets/{path.name}")
    site.copy(_STYLES, "assets/site.css")


def build_sitemap(site: Site) -> None:
    """Write robots.txt and, if the site's address is known, a sitemap of the finished site."""
    lines = ["User-agent: *", "Allow: /"]
    if site.url:
        pages = sorted(path.relative_to(site.out).as_posix() for path in site.out.rglob("*.html"))
        site.write_text(
            "sitemap.txt", "".join(f"{site.url}{page}\n" for page in pages if page != "404.html")
        )
        lines.append(f"Sitemap: {site.url}sitemap.txt")
    site.write_text("robots.txt", "\n".join(lines) + "\n")
