"""The pages of docs/ that are followed by hand: their code blocks, and the
commands in those."""

import re
import textwrap

from manifests import ROOT

KUBERNETES = ROOT / "docs" / "kubernetes.md"
CONTAINER = ROOT / "docs" / "container.md"


def blocks(page, language):
    """(line, text) of a page's code blocks in a language."""
    text = page.read_text("utf-8")
    for found in re.finditer(rf"^( *)```{language}\n(.*?)^\1```$", text,
                             re.MULTILINE | re.DOTALL):
        yield (text.count("\n", 0, found.start()) + 2,
               re.sub(rf"(?m)^{found[1]}", "", found[2]))


def indented_blocks(page):
    """The same of those that four spaces set apart, in whatever language."""
    text = page.read_text("utf-8")
    for found in re.finditer(r"(?<=\n\n)(?:    .*\n)+", text):
        yield (text.count("\n", 0, found.start()) + 1,
               textwrap.dedent(found[0]))


# What a command begins with; a word alone is a name.
TOOL = re.compile(
    r"(docker|podman|buildah|kubectl|helm|make|git|openssl|weir|promtool|sed"
    r"|curl|python3?|([\w./-]*/)?[\w-]+\.(py|sh)|--build-arg)(?= \S)")


def inline_commands(page):
    """(line, command) of those in the text: what stands between backticks and
    begins with a tool."""
    text = re.sub(r"(?ms)^( *)```.*?^\1```$",
                  lambda block: "\n" * block[0].count("\n"),
                  page.read_text("utf-8"))
    for found in re.finditer(r"`([^`]+)`", text):
        if TOOL.match(found[1]):
            yield (text.count("\n", 0, found.start()) + 1,
                   " ".join(found[1].split()))


def heading_at(page, line, order="## "):
    """The heading of an order that a line stands under."""
    before = page.read_text("utf-8").splitlines()[:line]
    found = [text for text in before if text.startswith(order)]
    return found[-1].removeprefix(order) if found else None


def headings(page):
    return re.findall(r"(?m)^## (.*)$", page.read_text("utf-8"))


def commands(page, section=None):
    """(line, command): a command with its continued lines and here-document.
    Of the whole page, or of what stands under one of its headings."""
    found = [*blocks(page, "sh")]
    if page == CONTAINER:
        found += indented_blocks(page)
    for line, text in found:
        if section not in (None, heading_at(page, line)):
            continue
        rows = text.splitlines(keepends=True)
        at = 0
        while at < len(rows):
            start, command = at, rows[at]
            while command.endswith("\\\n"):
                at += 1
                command += rows[at]
            if "<<'END'" in command:
                while rows[at] != "END\n":
                    at += 1
                    command += rows[at]
            at += 1
            yield line + start, command


def patches(page, section):
    """The entries of one's own list `patches:` that what stands under a heading
    shows, as text."""
    [found] = [text for line, text in blocks(page, "yaml")
               if heading_at(page, line).startswith(section)
               or heading_at(page, line, "### ").startswith(section)]
    return found


def with_patches(kustomization, entries):
    """The text of a kustomization.yaml of compose.py's, to whose list entries
    are added: it is the last key, or none."""
    if "\npatches:\n" not in kustomization:
        kustomization += "patches:\n"
    return kustomization + entries
