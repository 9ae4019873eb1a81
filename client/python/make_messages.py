"""Makes the modules of weir._proto from the .proto files: for each a stub with
its types, and a module that loads its messages from the descriptors beside it.
They live in a pool of their own, so that no other copy of these files in the
process is in their way."""

import importlib.resources
import pathlib
import re
import tempfile

from grpc_tools import protoc

SOURCES = ("weir/v1", "google/rpc")
# Under mypy --strict a mapping says of what.
MAPPING = re.compile(r"(?<!as )_Mapping(?!\[)")
# "from weir.v1 import a_pb2", and "from weir.v1.a_pb2 import A" of a file that
# another one's names are imported through.
IMPORT = re.compile(r"^from (?:weir\.v1|google\.rpc)(\.\w+)? import ",
                    re.MULTILINE)


def make(proto: pathlib.Path, out: pathlib.Path) -> None:
    files = [path.relative_to(proto).as_posix() for source in SOURCES
             for path in sorted((proto / source).glob("*.proto"))]
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        status = protoc.main([
            "protoc", f"-I{proto}", f"-I{well_known}", f"--pyi_out={folder}",
            f"--descriptor_set_out={out / 'descriptors.binpb'}",
            "--include_imports", *files])
        if status != 0:
            raise SystemExit(f"protoc ended with {status}")
        for file in files:
            stem = pathlib.PurePath(file).stem
            stub = pathlib.Path(folder, file).with_suffix("")
            stub = stub.with_name(f"{stem}_pb2.pyi")
            text = IMPORT.sub(r"from weir._proto\1 import ",
                              stub.read_text("utf-8"))
            (out / f"{stem}_pb2.pyi").write_text(
                MAPPING.sub("_Mapping[str, object]", text), "utf-8")
            (out / f"{stem}_pb2.py").write_text(
                f'"""The messages of {file}."""\n\n'
                "from weir._proto import load\n\n"
                f'load("{file}", globals())\n', "utf-8")
