"""The metrics and labels that a PromQL expression names. It reads what
promtool has accepted, so it need not find mistakes."""

import re
from typing import NamedTuple

_TOKEN = re.compile(r'''"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\[[^\]]*\]'''
                    r"|[A-Za-z_:][A-Za-z0-9_:]*|[0-9][0-9a-zA-Z.]*"
                    r"|=~|!~|!=|==|>=|<=|\S")
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
_WORDS = {"and", "or", "unless", "bool", "offset"}
_LABEL_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}


class Use(NamedTuple):
    metric: str
    matchers: list  # (label, operator, value)


def read(expression):
    """Returns ([Use], labels that are grouped by)."""
    tokens = _TOKEN.findall(expression)
    uses, grouped = [], set()
    i = 0
    while i < len(tokens):
        token = tokens[i]
        following = tokens[i + 1] if i + 1 < len(tokens) else ""
        i += 1
        if token in _LABEL_LISTS and following == "(":
            end = tokens.index(")", i)
            grouped.update(word for word in tokens[i + 1:end] if word != ",")
            i = end + 1
        elif (_NAME.fullmatch(token) and token not in _WORDS
              and following not in ("(", "by", "without")):
            matchers = []
            if following == "{":
                end = tokens.index("}", i)
                inside = [word for word in tokens[i + 1:end] if word != ","]
                matchers = [(inside[k], inside[k + 1], inside[k + 2][1:-1])
                            for k in range(0, len(inside), 3)]
                i = end + 1
            uses.append(Use(token, matchers))
    return uses, grouped
