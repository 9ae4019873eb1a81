#!/usr/bin/env python3
"""A stand-in for docker that knows what our pages use of it, and refuses the
rest as docker does. An image is what the Dockerfile says of it; `run` starts
the weir-server of this machine as the image would.

WEIR_STANDINS names the folder where it keeps images, the registry's too, and
what runs. It has no network of its own: a container has an address of the
loopback interface, which stands beside its published ports in `containers/`."""

import json
import os
import pathlib
import re
import shutil
import signal
import sys

import yaml

sys.dont_write_bytecode = True
TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "deploy")]

# pylint: disable=wrong-import-position
from standins import containers
from standins import images

STATE = pathlib.Path(os.environ.get("WEIR_STANDINS", "."))
BUILD = {"--target": True, "-t": True, "--tag": True, "--build-arg": True,
         "--no-cache": False, "--pull": False}
RUN = {"--rm": False, "--read-only": False, "-p": True, "-v": True,
       "--volume": True, "-e": True, "--env": True, "--publish": True,
       "--stop-timeout": True, "--tmpfs": True, "--gpus": True,
       "--cap-drop": True}


class Refused(Exception):
    """As docker says it, exit code 125."""


def parse(words, known):
    """({flag: values}, the other words); flags end at the first other one."""
    flags, at = {}, 0
    while at < len(words) and words[at].startswith("-"):
        name, has_value, value = words[at].partition("=")
        if name not in known:
            raise Refused(f"unknown flag: {name}")
        if known[name] and not has_value:
            at += 1
            if at == len(words):
                raise Refused(f"flag needs an argument: {name}")
            value = words[at]
        flags.setdefault(name, []).append(value)
        at += 1
    return flags, words[at:]


def of(flags, *names):
    return [value for name in names for value in flags.get(name, ())]


def build(words):
    flags, rest = parse(words, BUILD)
    if len(rest) != 1:
        raise Refused('"docker buildx build" requires 1 argument')
    file = pathlib.Path(rest[0], "Dockerfile")
    if not file.exists():
        raise Refused("failed to read dockerfile: open Dockerfile: "
                      "no such file or directory")
    text = file.read_text("utf-8")
    target = (of(flags, "--target") or [list(images.stages(text))[-1]])[-1]
    image = images.of_dockerfile(text, target, dict(
        value.partition("=")[::2] for value in of(flags, "--build-arg")))
    if image is None:
        raise Refused(f'target stage "{target}" could not be found')
    for name in of(flags, "-t", "--tag"):
        images.Shelf(STATE / "images.json").put(name, image)


def push(words):
    [name] = words
    image = images.Shelf(STATE / "images.json").get(name)
    if image is None:
        raise Refused(f"An image does not exist locally with the tag: {name}")
    if "." not in name.partition("/")[0]:
        raise Refused("push access denied, repository does not exist or may "
                      "require authorization: authorization failed")
    images.Shelf(STATE / "registry.json").put(name, image)


def mounts(flags, folder):
    """{path in the container: folder here}: copies, from which is taken away
    what the container's user may not read."""
    made = {}
    for number, value in enumerate(of(flags, "-v", "--volume")):
        source, _, target = value.partition(":")
        target, _, mode = target.partition(":")
        if not source.startswith("/") or mode not in ("", "ro", "rw"):
            raise Refused(f"invalid volume specification: '{value}'")
        if not os.path.exists(source):
            # docker makes a folder, of root's, and mounts it.
            (folder / f"v{number}").mkdir()
        else:
            shutil.copytree(source, folder / f"v{number}")
        # Whom `sudo chown` gave a file, where the test itself may not.
        given = STATE / "owners.json"
        owners = json.loads(given.read_text()) if given.exists() else {}
        for file in (folder / f"v{number}").rglob("*"):
            if file.is_file():
                original = os.path.join(source, file.relative_to(
                    folder / f"v{number}"))
                status = os.stat(original)
                owner = owners.get(os.path.realpath(original), status.st_uid)
                file.chmod(0o600 if containers.readable(status, owner) else 0)
        made[target] = folder / f"v{number}"
    for value in of(flags, "--tmpfs"):
        path = folder / f"t{len(made)}"
        path.mkdir()
        made[value.partition(":")[0]] = path
    return made


def publish(flags, container):
    """Refuses a port of this machine that another container has."""
    ports = of(flags, "-p", "--publish")
    taken = {}
    for file in (STATE / "containers").glob("*.json"):
        about = json.loads(file.read_text("utf-8"))
        for port in about["ports"]:
            taken[port.rsplit(":", 1)[0].rsplit(":", 1)[-1]] = file
    for port in ports:
        parts = port.split(":")
        if len(parts) not in (2, 3) or not parts[-1].isdigit():
            raise Refused(f"invalid publish opts format: {port}")
        if parts[-2] in taken:
            raise Refused("driver failed programming external connectivity: "
                          f"Bind for 0.0.0.0:{parts[-2]} failed: port is "
                          "already allocated")
    return ports


def run(words):
    flags, rest = parse(words, RUN)
    if not rest:
        raise Refused('"docker run" requires at least 1 argument')
    image = images.Shelf(STATE / "images.json").get(rest[0])
    if image is None:
        raise Refused(f"Unable to find image '{rest[0]}' locally")
    (STATE / "containers").mkdir(exist_ok=True)
    folder = STATE / f"c{os.getpid()}"
    folder.mkdir()
    try:
        variables = dict(value.partition("=")[::2]
                         for value in of(flags, "-e", "--env"))
        container = containers.Container(
            folder, image, mounts(flags, folder), variables, rest[1:] or None)
        ports = publish(flags, container)
        return attend(container, ports)
    finally:
        shutil.rmtree(folder)


def compose(words):
    """`up` of servers of ours behind others, who do nothing here but be there:
    what they all mount must be there and be theirs to read."""
    flags, rest = parse(words, {"-f": True, "--file": True,
                                "--project-directory": True})
    if rest != ["up"]:
        raise Refused(f"unknown docker command: \"compose {' '.join(rest)}\"")
    [file] = map(pathlib.Path, of(flags, "-f", "--file"))
    if not file.exists():
        raise Refused(f"open {file.absolute()}: no such file or directory")
    # Where paths begin.
    project = pathlib.Path(*of(flags, "--project-directory") or [file.parent])
    (STATE / "containers").mkdir(exist_ok=True)
    folder = STATE / f"c{os.getpid()}"
    ours, others = [], []
    try:
        for name, service in yaml.safe_load(file.read_text("utf-8"))[
                "services"].items():
            image = images.Shelf(STATE / "images.json").get(service["image"])
            if image is None:
                raise Refused("pull access denied for image "
                              f"'{service['image']}'")
            (folder / name).mkdir(parents=True)
            made = mounts({"-v": [
                binding(name, volume, project.resolve())
                for volume in service["volumes"]]}, folder / name)
            container = containers.Container(
                folder / name, image, made, {}, service["command"])
            if container.words[0] in images.IDLE:
                check_certificate(made["/etc/envoy-tls"])
                others.append(container)
            else:
                ours.append(container)
        for one in others:
            one.start()
        [server] = ours
        return attend(server, [])
    finally:
        for one in others:
            one.kill()
        shutil.rmtree(folder, ignore_errors=True)


def binding(service, volume, project):
    """What -v says of a volume of a service."""
    if isinstance(volume, str):
        source, _, rest = with_variables(volume).partition(":")
        if not source.startswith((".", "/", "~")):
            raise Refused(f'service "{service}" refers to undefined volume '
                          f"{source}: invalid compose project")
        return f"{project / source}:{rest}"
    source = project / with_variables(volume["source"])
    if volume["type"] != "bind":
        raise Refused(f"a volume of the type {volume['type']}")
    if not source.exists() and not volume.get("bind", {}).get(
            "create_host_path", True):
        raise Refused("Error response from daemon: invalid mount config for "
                      f'type "bind": bind source path does not exist: {source}')
    mode = "ro" if volume.get("read_only") else "rw"
    return f"{source}:{volume['target']}:{mode}"


def with_variables(text):
    """As compose takes them from the environment."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}",
                  lambda found: os.environ.get(found[1], found[2]), text)


def check_certificate(folder):
    """As Envoy does, which ends without."""
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).exists():
            raise Refused(f"envoy: {name}: no such file or directory")
        if not (folder / name).stat().st_mode & 0o400:
            raise Refused(f"envoy: {name}: permission denied")


def attend(container, ports):
    """Runs it to its end, and passes signals on as docker does."""
    about = STATE / "containers" / f"{os.getpid()}.json"
    container.start(inherit=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _:
                      container.process.send_signal(number))
    health = container.image["health"]
    temporary = about.with_suffix(".new")
    temporary.write_text(json.dumps({
        "ports": ports, "pid": container.process.pid,
        "variables": container.variables(),
        "health": container.program(health)}), "utf-8")
    temporary.rename(about)
    try:
        return container.wait()
    finally:
        about.unlink()


def main(words):
    commands = {"build": build, "compose": compose, "push": push, "run": run}
    if not words or words[0] not in commands:
        raise Refused(f"docker: '{' '.join(words[:1])}' is not a docker "
                      "command that our pages use")
    return commands[words[0]](words[1:]) or 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as why:
        print(f"docker: {why}", file=sys.stderr)
        sys.exit(125)
