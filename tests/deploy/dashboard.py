"""The panels of deploy/monitoring/dashboard.json, and their queries as Grafana
would ask them."""

import functools
import json
import re

from manifests import MONITORING

FILE = MONITORING / "dashboard.json"


@functools.cache
def dashboard():
    return json.loads(FILE.read_text("utf-8"))


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def fill(query, namespace=".*", pod=".*", rate="5m"):
    """A query with Grafana's variables filled in; as they are for "All"."""
    return (query.replace("$__rate_interval", rate)
            .replace("$namespace", namespace).replace("$pod", pod))


def legend(target, labels):
    """What Grafana calls a series of a panel's query."""
    return re.sub(r"{{(\w+)}}", lambda label: labels.get(label[1], ""),
                  target["legendFormat"])


def queries():
    """(where, PromQL) of all panels and variables."""
    for panel in panels():
        for target in panel["targets"]:
            yield f"panel {panel['title']}", fill(target["expr"])
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                 variable["query"]["query"])
            yield f"variable {variable['name']}", (
                f"count by ({query[2]}) ({fill(query[1])})")
