"""Rules of Prometheus beside copies of them that are written otherwise, so that
one evaluation tells what each copy would have done. A copy shares the rules
that are the same in it."""

import re

import yaml

import manifests
import promql


def name_of(rule):
    return rule.get("alert") or rule["record"]


def read_by(rule):
    """Names of the metrics and alerts that a rule reads."""
    for use in promql.read(rule["expr"])[0]:
        yield use.metric
        if use.metric == "ALERTS":
            yield from (value for label, _, value in use.matchers
                        if label == "alertname")


class Rules:
    """Those of a file, whose names all differ."""

    def __init__(self, text):
        groups = yaml.load(text, Loader=manifests.LOADER)["groups"]
        self.group_of = {name_of(rule): group["name"] for group in groups
                         for rule in group["rules"]}
        self.by_name = {name_of(rule): rule for group in groups
                        for rule in group["rules"]}

    def needed_by(self, names):
        """Those, and what they read, by way of others too; in order."""
        found, left = set(), {*names}
        while left:
            name = left.pop()
            found.add(name)
            left |= {*read_by(self.by_name[name])} & {*self.by_name} - found
        return [name for name in self.by_name if name in found]


class Variants:
    """Copies of rules, of which any may be put beside any."""

    def __init__(self, text):
        self.original = Rules(text)
        self.copies = []

    def add(self, text, alerts):
        """A copy as in `text`, which has the same names in the same order, of
        some alerts and what they need. {alert: what the copy calls it}."""
        changed = Rules(text)
        needed = changed.needed_by(alerts)
        own = {name for name in needed
               if changed.by_name[name] != self.original.by_name[name]}
        while more := {name for name in needed if name not in own
                       and own & {*read_by(changed.by_name[name])}}:
            own |= more
        self.copies.append((changed, own))
        return {alert: self._called(alert, len(self.copies) - 1)
                for alert in alerts}

    def _called(self, name, copy):
        return f"{name}_{copy}" if name in self.copies[copy][1] else name

    def of(self, called):
        """The text of a file of rules: what copies need that `called` names,
        as [(alert, what add called it)]."""
        found = {}
        for copy, (changed, own) in enumerate(self.copies):
            alerts = [alert for alert, name in called
                      if name == self._called(alert, copy)]
            for name in changed.needed_by(alerts):
                found[self._called(name, copy)] = (name, copy)
        place = {name: at for at, name in enumerate(self.original.by_name)}
        groups = {}
        for name, copy in sorted(found.values(),
                                 key=lambda one: (place[one[0]], one[1])):
            groups.setdefault(self.original.group_of[name], []).append(
                self._written(name, copy))
        return yaml.safe_dump({"groups": [
            {"name": name, "rules": rules} for name, rules in groups.items()]},
            sort_keys=False)

    def _written(self, name, copy):
        changed, own = self.copies[copy]
        rule = dict(changed.by_name[name])
        rule["alert" if "alert" in rule else "record"] = self._called(name, copy)
        if own:
            names = "|".join(map(re.escape, own))
            rule["expr"] = re.sub(rf"(?<![\w:])({names})(?![\w:])",
                                  rf"\1_{copy}", rule["expr"])
        return rule
