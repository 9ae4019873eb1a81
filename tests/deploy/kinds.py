"""Checks manifests against the fields that their kinds have."""

import pathlib
import re

import jsonschema
import kubernetes_validate.utils as kubernetes
import referencing
import yaml

CUSTOM_KINDS = pathlib.Path(__file__).with_name("custom_kinds.yaml")
DEFINITIONS = "https://kubernetes.io/api/_definitions.json"
SCALARS = {"string": {"type": "string"}, "integer": {"type": "integer"},
           "boolean": {"type": "boolean"}, "any": {},
           "strings": {"type": "object",
                       "additionalProperties": {"type": "string"}}}


def newest_versions(count):
    """The newest versions of Kubernetes whose kinds are known, as "1.37"."""
    versions = dict.fromkeys(kubernetes.major_minor(version)
                             for version in kubernetes.all_versions())
    return list(versions)[-count:]


class Checker:
    """The kinds of one version of Kubernetes, and the custom ones."""

    def __init__(self, version):
        self.version = version
        self.folder = f"kubernetes-json-schema/v{version}.0-local-strict"
        self.definitions = kubernetes.schema_contents(
            f"{self.folder}/_definitions.json", version)
        self.registry = (
            referencing.Resource.from_contents(self.definitions)
            @ referencing.Registry())
        # By version and kind; those of Kubernetes itself as they come.
        self.validators = {
            name: jsonschema.Draft202012Validator(
                self.document_schema(spec), registry=self.registry)
            for name, spec in yaml.safe_load(
                CUSTOM_KINDS.read_text("utf-8")).items()}

    def check(self, document):
        """Raises if the document has a field that its kind does not have, one
        of another type, or lacks one."""
        version, kind = document["apiVersion"], document["kind"]
        name = f"{version} {kind}"
        if name not in self.validators:
            self.validators[name] = self.built_in(version, kind)
        self.validators[name].validate(document)

    def built_in(self, version, kind):
        # rbac.authorization.k8s.io/v1 is called rbac-v1.
        version = re.sub(r"^([^./]*)(\.[^/]*)?/", r"\1-", version)
        return jsonschema.Draft202012Validator(
            kubernetes.schema_contents(
                f"{self.folder}/{kind.lower()}-{version}.json", self.version),
            registry=self.registry)

    def document_schema(self, spec):
        metadata = "k8s:io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
        return self.schema({"apiVersion!": "string", "kind!": "string",
                            "metadata!": metadata, "spec!": spec})

    def schema(self, what):
        """The JSON schema of a type in the notation of custom_kinds.yaml."""
        if isinstance(what, list):
            return {"type": "array", "items": self.schema(what[0])}
        if isinstance(what, dict):
            return self.object_schema(what)
        if what in SCALARS:
            return SCALARS[what]
        if what.startswith("k8s:"):
            self.definition(what)
            return {"$ref": f"{DEFINITIONS}#/$defs/{what[4:]}"}
        if what.startswith("/"):
            return {"type": "string", "pattern": what[1:-1]}
        if "|" in what:
            return {"enum": what.split("|")}
        raise ValueError(f"{CUSTOM_KINDS.name}: what is '{what}'?")

    def object_schema(self, fields):
        properties = {}
        for name, what in fields.items():
            if name == "+":
                for inherited in self.definition(what)["properties"]:
                    properties.setdefault(inherited, {"$ref": (
                        f"{DEFINITIONS}#/$defs/{what[4:]}"
                        f"/properties/{inherited}")})
            else:
                properties[name.rstrip("!")] = self.schema(what)
        return {"type": "object", "properties": properties,
                "required": [name[:-1] for name in fields
                             if name.endswith("!")],
                "additionalProperties": False}

    def definition(self, what):
        return self.definitions["$defs"][what[4:]]
