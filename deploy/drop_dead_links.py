#!/usr/bin/env python3
"""drop_dead_links.py FOLDER: in every *.md beneath the folder, a link to a file
that the folder does not have becomes its text alone. Links to the web and
within a page stay. Prints each page and link that it changed."""

import pathlib
import re
import sys

LINK = re.compile(r"\[([^][]*)\]\(([^()\s]+)\)")


def drop_dead_links(folder):
    """Yields (page, target) of the links that are gone."""
    folder = pathlib.Path(folder).resolve()
    for page in sorted(folder.rglob("*.md")):
        dropped = []

        def replace(link, page=page, dropped=dropped):
            text, target = link.groups()
            path = target.split("#")[0]
            if not path or re.match(r"[a-z]+:", path):
                return link[0]
            found = (page.parent / path).resolve()
            if found.exists() and found.is_relative_to(folder):
                return link[0]
            dropped.append(target)
            return text

        text = page.read_text("utf-8")
        page.write_text(LINK.sub(replace, text), "utf-8")
        yield from ((page.relative_to(folder), target) for target in dropped)


if __name__ == "__main__":
    for changed, gone in drop_dead_links(sys.argv[1]):
        print(f"bundle: {changed}: no {gone} here, its text stays")
