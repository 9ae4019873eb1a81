#!/usr/bin/env python3
"""Writes the list of parts of an image or a bundle, as CycloneDX 1.6.

    sbom.py --build FOLDER --out FILE [--root FOLDER] [--libraries FOLDER]
            [PACKAGE...]

It names weir with its version and build id, and, each with its version, license
and package URL:

    what is part of our programs: the packages that cmake/linked_packages.txt
        calls so, and, if FOLDER of --libraries has libweir_cuda.so, what of
        CUDA is
    the Debian packages PACKAGE..., or all that are installed below --root
    the wheels that NVIDIA's libraries in --libraries came out of

A build that took a dependency from elsewhere is refused. Run by the Python that
`deploy/setup.sh --sbom` installs. The same parts make the
same bytes: SOURCE_DATE_EPOCH or 1980 is the time in it.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import uuid

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import is_supported_id
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "cmake"))
sys.dont_write_bytecode = True
import build_id  # pylint: disable=wrong-import-position

# Debian's names of licenses whose SPDX has others; "+" is told apart below.
SPDX = {"Expat": "MIT", "BSD-2-clause": "BSD-2-Clause", "zlib": "Zlib",
        "BSD-3-clause": "BSD-3-Clause", "Artistic": "Artistic-1.0-Perl"}
# Of packages that we load and whose copyright files only people can read.
TOLD = {"libc6": "LGPL-2.1-or-later", "libc-ares2": "MIT",
        "libgnutls30": "LGPL-2.1-or-later", "libtasn1-6": "LGPL-2.1-or-later",
        **dict.fromkeys(("gcc-12-base", "libgcc-s1", "libgomp1", "libstdc++6"),
                        "GPL-3.0-or-later WITH GCC-exception-3.1")}
GNU = re.compile(r"(A?GPL|LGPL|GFDL)-?v?(\d)(\.\d)?(\+)?")
NVIDIA = "NVIDIA Software License Agreement"
# The wheel that each of NVIDIA's libraries comes out of, by how its name begins.
WHEELS = {"libnvrtc": "nvidia-cuda-nvrtc", "libcublas": "nvidia-cublas",
          "libnvjpeg": "nvidia-nvjpeg", "libcudnn": "nvidia-cudnn-cu13"}


def license_of(name):
    name = SPDX.get(name, name)
    gnu = GNU.fullmatch(name)
    if gnu:
        kind, major, minor, later = gnu.groups()
        name = (f"{kind}-{major}{minor or '.0'}-"
                f"{'or-later' if later else 'only'}")
    if is_supported_id(name):
        return DisjunctiveLicense(id=name)
    return DisjunctiveLicense(name=name)


def debian_licenses(root, package):
    """What the package's copyright file names."""
    if package in TOLD:
        return [license_of(TOLD[package])]
    file = root / "usr/share/doc" / package / "copyright"
    text = file.read_text("utf-8", "replace") if file.exists() else ""
    if text.startswith("Format"):
        names = re.findall(r"(?m)^License:[ \t]*(\S.*?)[ \t]*$", text)
    else:
        names = re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*\w)",
                           text)
    names = dict.fromkeys(names) or [f"see /usr/share/doc/{package}/copyright"]
    # Two of Debian's names may be one of SPDX's.
    return {(part.id or part.name): part
            for part in map(license_of, names)}.values()


class Installed:
    """The Debian packages below a root, by name: version and architecture."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.packages = {}
        status = self.root / "var/lib/dpkg/status"
        for block in status.read_text("utf-8").split("\n\n"):
            fields = dict(re.findall(r"(?m)^([\w-]+): (.*)$", block))
            if fields.get("Status", "").endswith(" installed"):
                self.packages[fields["Package"]] = (fields["Version"],
                                                    fields["Architecture"])

    def component(self, name, how):
        version, architecture = self.packages[name]
        url = PackageURL("deb", "debian", name, version,
                         {"arch": architecture, "distro": "debian-12"})
        return component(name, version, url, how,
                         debian_licenses(self.root, name))


def component(name, version, url, how, licenses, hashes=()):
    return Component(
        name=name, version=version, purl=url, bom_ref=url.to_string(),
        type=ComponentType.LIBRARY, licenses=licenses, hashes=hashes,
        properties=[Property(name="weir:how", value=how)])


class Cuda:
    """What of CUDA a build was made of."""

    def __init__(self, cache):
        self.cache = cache
        self.folders = [pathlib.Path(cache["WEIR_CUDA_EXTRAS"]),
                        pathlib.Path(cache["WEIR_CUDA_EXTRAS"]) / "toolkit"]

    def wheel(self, name, folders):
        """(version, SHA-256) of the wheel, or None if it lies in none of
        these."""
        for folder in folders:
            file = folder / "wheels.txt"
            text = file.read_text("ascii") if file.exists() else ""
            found = re.search(rf"(?m)^{name}==(\S+) --hash=sha256:(\w+)$", text)
            if found:
                return found.groups()
        return None

    def folders_of(self, path):
        """Where the wheel of a file that was compiled would lie."""
        path = pathlib.Path(path).resolve()
        return [folder for folder in reversed(self.folders)  # the inner first
                if path.is_relative_to(folder.resolve())][:1]

    def defined(self, folder, header, *names):
        """The version that a header defines, by its macros."""
        text = (pathlib.Path(self.cache[folder]) / header).read_text("utf-8")
        return ".".join(re.search(rf"#define {name}\s+(\d+)", text)[1]
                        for name in names)

    def runtime_version(self):
        told = pathlib.Path(self.cache["WEIR_CUDART_STATIC"]).parents[1]
        told = told.resolve() / "version.json"
        if told.exists():
            parts = json.loads(told.read_text("utf-8"))
            return parts["cuda_cudart"]["version"]
        number = int(self.defined("WEIR_CUDART_INCLUDE", "cuda_runtime_api.h",
                                  "CUDART_VERSION"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def component(self, name, wheel, version, how, *names):
        licenses = [license_of(license_name) for license_name in names]
        if wheel is None:  # an archive of NVIDIA's, or its packages
            return component(name, version,
                             PackageURL("generic", None, name, version), how,
                             licenses)
        version, digest = wheel
        return component(name, version, PackageURL("pypi", None, name, version),
                         how, licenses,
                         [HashType(alg=HashAlgorithm.SHA_256, content=digest)])

    def parts(self):
        runtime, frontend = "nvidia-cuda-runtime", "nvidia-cudnn-frontend"
        path = self.cache["WEIR_CUDART_STATIC"]
        yield self.component(
            runtime, self.wheel(runtime, self.folders_of(path)),
            self.runtime_version(), "part", NVIDIA)
        path = self.cache.get("WEIR_CUDNN_FRONTEND_INCLUDE", "NOTFOUND")
        if not path.endswith("NOTFOUND"):
            yield self.component(
                frontend, self.wheel(frontend, self.folders_of(path)),
                self.defined("WEIR_CUDNN_FRONTEND_INCLUDE",
                             "cudnn_frontend_version.h",
                             *(f"CUDNN_FRONTEND_{part}_VERSION"
                               for part in ("MAJOR", "MINOR", "PATCH"))),
                "part", "Apache-2.0", "MIT")

    def libraries(self, folder):
        found = {wheel for file in folder.glob("lib*.so*")
                 for start, wheel in WHEELS.items()
                 if file.name.startswith(start)}
        for name in sorted(found):
            wheel = self.wheel(name, self.folders)
            if wheel is None:
                sys.exit(f"sbom: no wheels.txt in {self.folders} tells of what "
                         f"{name} the libraries are")
            yield self.component(name, wheel, None, "library", NVIDIA)


def cache_of(build):
    lines = (build / "CMakeCache.txt").read_text("utf-8").splitlines()
    return dict(re.findall(r"^([\w-]+):\w+=(.*)$", line)[0] for line in lines
                if re.match(r"[\w-]+:\w+=", line))


def refuse_others(build):
    """The versions below are Debian's."""
    text = (build / "generated/build_parts.txt").read_text("utf-8")
    others = re.findall(r"(?m)^elsewhere \w+ (.*)$", text)
    if others:
        sys.exit("sbom: the build took these from elsewhere than Debian's "
                 f"packages, and nothing tells what they are: {others}")


def components(arguments, cache):
    here = Installed("/")
    for name, how in build_id.listed_packages().items():
        if how == "part":
            yield here.component(name, "part")
    cuda = Cuda(cache)
    if arguments.libraries:
        if (arguments.libraries / "libweir_cuda.so").exists():
            yield from cuda.parts()
        yield from cuda.libraries(arguments.libraries)
    there = Installed(arguments.root)
    loaded = set(build_id.Packages().of_programs())
    for name in sorted(arguments.package or there.packages):
        yield there.component(name,
                              "library" if name in loaded else "beside them")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--root", default="/")
    parser.add_argument("--libraries", type=pathlib.Path)
    parser.add_argument("package", nargs="*")
    arguments = parser.parse_args()
    refuse_others(arguments.build)
    cache = cache_of(arguments.build)
    version = cache["CMAKE_PROJECT_VERSION"]
    source = (arguments.build / "generated/build_id.cc").read_text("ascii")
    build = re.search(r'kBuildId\[\] = "(\w+)"', source)[1]
    url = PackageURL("generic", None, "weir", version, {"build": build})
    weir = Component(
        name="weir", version=version, type=ComponentType.APPLICATION, purl=url,
        bom_ref=url.to_string(), licenses=[license_of("Apache-2.0")],
        properties=[Property(name="weir:build", value=build)])
    parts = list(components(arguments, cache))
    told = "\n".join(sorted([url.to_string(),
                             *(part.bom_ref.value for part in parts)]))
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    bom = Bom(
        components=parts,
        serial_number=uuid.UUID(hashlib.sha256(told.encode()).hexdigest()[:32],
                                version=4),
        metadata=BomMetaData(
            component=weir, timestamp=datetime.datetime.fromtimestamp(
                epoch, datetime.timezone.utc)))
    bom.register_dependency(weir, parts)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(JsonV1Dot6(bom).output_as_string(indent=1) + "\n",
                             "utf-8")


if __name__ == "__main__":
    main()
