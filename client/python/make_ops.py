"""Makes weir/ops.py, a function for each operator of catalog.json, and
weir/_catalog.py, what those functions know of their operators."""

import json
import keyword
import pathlib
import pprint
import re
import textwrap
from typing import Any

KINDS = {"int": "int", "float": "float", "string": "str | bytes",
         "ints": "Sequence[int]", "floats": "Sequence[float]",
         "strings": "Sequence[str | bytes]", "tensor": "ArrayLike"}

HEAD = '''"""The operators of weir's catalog, as functions of tensors. Made from
catalog.json.

Inputs are tensors, or what NumPy makes arrays of; attributes are keywords, and
one that is left out has the operator's default. With a batch for one of them
all are done sample by sample, and what comes is a batch. `after` and `signal`
are points of timelines: the work starts when all of the first are reached, and
reaches the others when it has completed."""

# pylint: disable=redefined-builtin,too-many-lines

from collections.abc import Sequence
from typing import Any, Literal, NoReturn, overload

from numpy.typing import ArrayLike, DTypeLike

from weir._batch import Batch
from weir._catalog import OPERATORS
from weir._evaluation import apply
from weir._tensor import Tensor, TensorLike
from weir._timeline import Point

__all__ = [
{names}
]


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(
        f"weir.ops has no {{name!r}}: there is no such operator in the catalog "
        "that this package was built with")
'''


def python_name(name: str) -> str:
    """MatMul is mat_mul, transA trans_a."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return name + "_" if keyword.iskeyword(name) else name


def parameters(operator: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Of a function: its positional ones, and those that are keywords."""
    names: list[str] = []
    positional, named = [], []
    type_attributes = {output["type_attribute"]
                       for output in operator["outputs"]}
    for argument in operator["inputs"]:
        names.append(python_name(argument["name"]))
        positional.append({
            "required": f"{names[-1]}: TensorLike",
            "optional": f"{names[-1]}: TensorLike | None = None",
            "variadic": f"*{names[-1]}: TensorLike"}[argument["presence"]])
    for attribute in attributes_of(operator):
        names.append(python_name(attribute["name"]))
        kind = KINDS[attribute["kind"]]
        if attribute["name"] in type_attributes and kind == "int":
            kind = "DTypeLike"
        named.append(f"{names[-1]}: {kind}" if attribute["required"]
                     else f"{names[-1]}: {kind} | None = None")
    if len(set(names) - {"outputs", "after", "signal"}) != len(names):
        raise SystemExit(f"{operator['name']}: two parameters have one name, "
                         "or one of ours: " + ", ".join(names))
    return positional, named


def attributes_of(operator: dict[str, Any]) -> list[dict[str, Any]]:
    """Without those that an input of the same name came after."""
    inputs = {argument["name"] for argument in operator["inputs"]}
    return [attribute for attribute in operator["attributes"]
            if attribute["name"] not in inputs]


def signature(name: str, rows: list[str], result: str, body: str) -> str:
    lines = "".join(f"    {row},\n" for row in rows)
    return f"def {name}(\n{lines}) -> {result}:{body}"


def overloaded(name: str, rows: list[str], result: str) -> str:
    # One output is several, and what the types of operands admit may be a
    # batch, too.
    overlaps = "outputs: Literal[1] = 1" in rows or (
        "Batch" not in result and not rows[0].endswith("= None"))
    note = "  # type: ignore[overload-overlap]" if overlaps else ""
    return "@overload\n" + signature(name, rows, result, " ...\n\n\n").replace(
        "(\n", f"({note}\n", 1)


def of_batches(rows: list[str]) -> list[str]:
    """Parameters that may be batches, too."""
    return [re.sub(r"^(\*?\w+: .*?)( \| None = None)?$", r"\1 | Batch\2", row)
            for row in rows]


def docstring(operator: dict[str, Any]) -> str:
    text = operator["summary"]
    more = operator["description"].removeprefix(text).strip()
    if more:
        text += "\n\n" + more
    rows = [f"{python_name(each['name'])}: {each['description']}"
            for each in attributes_of(operator) if each["description"]]
    paragraphs = [textwrap.fill(part, 75, subsequent_indent=indent)
                  for part, indent in [
                      *((line, "") for line in text.split("\n")),
                      *((row, "  ") for row in rows)]]
    if rows:
        paragraphs.insert(len(paragraphs) - len(rows), "")
    whole = "\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    return '\n    """' + textwrap.indent(whole, "    ").strip() + '\n    """\n'


def function(operator: dict[str, Any]) -> str:
    name = python_name(operator["name"])
    positional, named = parameters(operator)
    star = [] if any(row.startswith("*") for row in positional) else ["*"]
    ending = ["after: Sequence[Point] = ()", "signal: Sequence[Point] = ()"]
    inputs = ", ".join(
        ("*" if each["presence"] == "variadic" else "") +
        python_name(each["name"]) for each in operator["inputs"])
    values = ", ".join(f"{each['name']!r}: {python_name(each['name'])}"
                       for each in attributes_of(operator))
    arguments = (f"OPERATORS[{operator['name']!r}],\n"
                 f"        [{inputs}],\n        {{{values}}}, after, signal")
    last = operator["outputs"][-1]["presence"]
    if last == "required" and len(operator["outputs"]) != 1:
        raise SystemExit(f"{operator['name']}: several required outputs")

    def rows(counts: list[str], batches: bool) -> list[str]:
        if batches:
            return [*of_batches(positional), *star, *of_batches(named),
                    *counts, *ending]
        return [*positional, *star, *named, *counts, *ending]

    # One output is the tensor, several are a tuple.
    kinds = {"required": [([], "{}")],
             "variadic": [(["outputs: int"], "tuple[{}, ...]")]}.get(
        last, [(["outputs: Literal[1] = 1"], "{}"),
               (["outputs: int"], "tuple[{}, ...]")])
    made = "".join(
        overloaded(name, rows(counts, batches), result.format(
            "Batch" if batches else "Tensor"))
        for batches in ((False, True) if positional else (False,))
        for counts, result in kinds)
    doc = docstring(operator)
    body = {"required": f"{doc}    made: {'Any' if positional else 'Tensor'} = "
                        f"apply({arguments}, 1)[0]\n    return made\n",
            "variadic": f"{doc}    return apply({arguments},\n"
                        "        outputs)\n"}.get(
        last, f"{doc}    made: Any = apply({arguments},\n        outputs)\n"
              "    return made[0] if outputs == 1 else made\n")
    if made.count("@overload") == 1:
        return signature(name, rows([], False), "Tensor", body)
    counts = {"required": [], "variadic": ["outputs: int"]}.get(
        last, ["outputs: int = 1"])
    return made + signature(name, rows(counts, bool(positional)), "Any", body)


def known(operator: dict[str, Any]) -> str:
    def arguments(listed: list[dict[str, Any]]) -> str:
        return pprint.pformat(tuple(
            (each["name"], each["presence"], tuple(each["types"]),
             each["type_group"], each["type_attribute"]) for each in listed),
            width=70)

    kinds = {each["name"]: each["kind"] for each in attributes_of(operator)}
    return (f"    {operator['name']!r}: Operator(\n"
            f"        {operator['domain']!r}, {operator['name']!r},\n"
            f"        arguments({arguments(operator['inputs'])}),\n"
            f"        arguments({arguments(operator['outputs'])}),\n"
            f"        {kinds!r}),\n")


def make(catalog: pathlib.Path, package: pathlib.Path) -> None:
    operators = json.loads(catalog.read_text("utf-8"))
    names = [python_name(operator["name"]) for operator in operators]
    if len(set(names)) != len(names):
        raise SystemExit("two operators have one name")
    listed = "\n".join(f'    "{name}",' for name in sorted(names))
    (package / "ops.py").write_text(
        HEAD.format(names=listed) + "".join(
            f"\n\n{function(operator)}" for operator in operators), "utf-8")
    (package / "_catalog.py").write_text(
        '"""What is known of each operator. Made from catalog.json."""\n\n'
        "from weir._operator import Operator, arguments\n\n"
        "OPERATORS: dict[str, Operator] = {\n" +
        "".join(map(known, operators)) + "}\n", "utf-8")
