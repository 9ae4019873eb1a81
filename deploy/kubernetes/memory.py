#!/usr/bin/env python3
"""Prints what a server may hold in the host's memory: the bounds that its flags
and its sources set, their sum, and the memory limit that it needs. The models
that it serves come on top; a fifth of the limit is left for them."""

import argparse
import difflib
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GIB = 2**30
# Of the limit; the rest is for models.
SHARE = 0.8

# What a server needs beside all that has a bound, models aside; and NVIDIA's
# driver with its libraries.
PROCESS_BYTES = 256 * 2**20
DRIVER_BYTES = 512 * 2**20
# A request alone may grow by its message's size and so much.
ALONE_BYTES = 2**20
# What docs/threat_model.md says that pieces of messages take beyond gRPC's
# limit: for each open stream, and of gRPC's limit.
STREAM_BYTES = 36 * 2**10
PIECES_SHARE = 0.2
# Of each connection: its frames that are looked at, as that page says; and what
# gRPC keeps for it, and OpenSSL, which a test measures.
FRAME_BYTES = 33 * 2**10
PLAIN_BYTES = 24 * 2**10
TLS_BYTES = 96 * 2**10
# What callers keep between calls, of each: a space with what is known of works
# that are done, a tensor with its memory's entry, a context, a timeline, a work
# that is not done, and a session with the answers that it keeps. docs/limits.md#spaces says the same.
SPACE_BYTES = 2**10
KEPT_WORK_BYTES = 512
KEPT_TENSOR_BYTES = 2**10
CONTEXT_BYTES = 8 * 2**10
TIMELINE_BYTES = 2**10
SPACE_WORK_BYTES = 8 * 2**10
SESSION_BYTES = 3 * 2**19
# A reply that nobody takes has up to so many times what it counts.
REPLY_TIMES = 3


def constant(path, name):
    """A number in the server's sources: `NAME = size_t{A} << B`, `NAME = A`,
    `NAME = absl::Seconds(A)`."""
    text = (ROOT / path).read_text("utf-8")
    [(size, shift)] = re.findall(
        rf"\b{name} =\s+(?:size_t{{|int64_t{{|absl::Seconds\()?(\d+)"
        r"(?:}? << (\d+))?\)?;", text)
    return int(size) << int(shift or 0)


def default(variable):
    """What the flag of an environment variable is without being given."""
    return constant("server/options.h",
                    variable.removeprefix("WEIR_").lower())


def variable_of(flag):
    """--queue-length is WEIR_QUEUE_LENGTH."""
    return "WEIR_" + flag.strip("-").upper().replace("-", "_")


def names_in(path, pattern):
    return {variable_of(name) for name in re.findall(
        pattern, (ROOT / path).read_text("utf-8"))}


VARIABLES = names_in("server/options.cc", r'"(--(?!version)[a-z0-9-]+)"')
NUMBERS = VARIABLES & names_in("server/options.h",
                               r"\b(?:int|int64_t|size_t) (\w+) = ")

# Of WEIR_ and no flags: the client's in the container, and the libraries'.
OTHERS = {"WEIR_SERVER", "WEIR_TLS_CA", "WEIR_TLS_SERVER_NAME",
          "WEIR_CUDA_LIBRARY_PATH"}

PROGRAM_BYTES = constant("kernels/graph/program_cache.h", "max_bytes")
COMPILE_BYTES = constant("kernels/graph/compile_queue.h", "max_queued_bytes")
# What gRPC may hold unread.
UNREAD_BYTES = constant("server/server.cc", "kUnread")
SMALL_CALL_BYTES = constant("server/scheduling/admission.h", "kSmallCallRoom")
HEALTH = "server/rpc/health_service.h"
CALL_BYTES = constant("server/rpc/call_policy.h", "kCallBytes")
WATCHES = constant(HEALTH, "kMaxWatches")
HEALTH_BYTES = SMALL_CALL_BYTES + WATCHES * (
    CALL_BYTES + 2 * constant(HEALTH, "kMaxMessageBytes"))
RECEIVING = constant("server/rpc/transport.h", "max_receiving")
REFUSALS = constant("server/rpc/transport.h", "max_refusals")
# Of both an I/O thread has its part of all, but no fewer than these.
LEAST_OF_A_THREAD = constant("server/rpc/transport.cc", "kLeastOfAThread")
# What is being made at the moment comes on top of PROGRAM_BYTES: a program,
# which is a message, the constants that it computes with, the message's parts
# and what is folded; and plans. Each thread may evaluate a node on the host.
PLAN_THREADS = constant("kernels/graph/plan_queue.h", "threads")
MAKING_BYTES = (
    constant("server/models/parsed_size.h", "kMaxParsedBytes") +
    constant("kernels/graph/compiler.cc", "kFoldBudgetBytes") +
    PLAN_THREADS * constant("kernels/graph/planner.cc", "kMaxHeldBytes") +
    (1 + PLAN_THREADS) * constant("kernels/graph/host_evaluator.h",
                                  "kMaxScratchBytes"))
WORKS_KEPT = constant("server/spaces/space.h", "kDoneWorksKept")
SPACES_TIMES = constant("server/spaces_options.h", "kServerTimes")
# In the host's memory, for a GPU: pictures on their way, nvJPEG's decoders.
PICTURE_BYTES = (
    constant("kernels/device/cuda/staged_copy.h", "kMaxBytes") +
    constant("kernels/device/cuda/nvjpeg.cc", "kMaxBytes"))


def of_threads(count, threads):
    """How many of `count` all I/O threads have together; 0: as many threads as
    the server makes by itself, which keep within it."""
    if not threads:
        return count
    return threads * max(count // threads, min(count, LEAST_OF_A_THREAD))


def spaces_bytes(number):
    """What spaces hold beside the elements of their tensors. `number` of a
    variable."""
    spaces = number("WEIR_MAX_SPACES")
    if not spaces:
        return 0
    times = min(SPACES_TIMES, spaces)
    return spaces * (SPACE_BYTES + WORKS_KEPT * KEPT_WORK_BYTES) + times * (
        number("WEIR_SPACE_TENSORS") * KEPT_TENSOR_BYTES +
        number("WEIR_SPACE_CONTEXTS") * CONTEXT_BYTES +
        number("WEIR_SPACE_TIMELINES") * TIMELINE_BYTES +
        number("WEIR_SPACE_WORKS") * SPACE_WORK_BYTES +
        number("WEIR_SPACE_SESSIONS") * SESSION_BYTES)


def parts(settings, limit):
    """[(what, bytes)] for settings, by environment variable, under a memory
    limit in bytes."""

    def number(variable):
        return int(settings.get(variable) or default(variable))

    gpu = settings.get("WEIR_DEVICE") != "cpu"
    engines = 2 if gpu else 1  # with the CPU beside it
    queue = number("WEIR_QUEUE_BYTES")
    message = number("WEIR_MAX_MESSAGE_BYTES")
    messages = 2 * max(queue, message) + UNREAD_BYTES
    threads = int(settings.get("WEIR_IO_THREADS") or 0)
    refusals = of_threads(REFUSALS, threads)
    streams = (of_threads(RECEIVING, threads) + WATCHES + refusals +
               number("WEIR_QUEUE_LENGTH") + number("WEIR_STREAMS"))
    connection = FRAME_BYTES + (TLS_BYTES if settings.get("WEIR_TLS_CERT")
                                else PLAIN_BYTES)
    host = number("WEIR_HOST_BYTES")
    tensors = number("WEIR_TENSOR_BYTES")
    arena = number("WEIR_ARENA_BYTES") or limit / 2
    if gpu:
        # A quarter is of the CPU beside it, and as much as its arena again for
        # the CPU's decoders; the rest is on the device.
        arena = 2 * min(arena, limit / 2) / 4
        host, tensors = 1.25 * host, tensors / 4
    return [
        ("messages", messages),
        ("pieces of messages",
         PIECES_SHARE * messages + STREAM_BYTES * streams),
        ("connections", connection * number("WEIR_MAX_CONNECTIONS")),
        ("parsed messages, or unsent replies",
         REPLY_TIMES * max(queue, message + ALONE_BYTES)),
        ("other RPCs, and health", SMALL_CALL_BYTES + HEALTH_BYTES),
        ("refusals that nobody reads", refusals * CALL_BYTES),
        ("inputs and replies", host),
        ("what works compute on", arena),
        ("tensors that callers keep", tensors),
        ("spaces", spaces_bytes(number)),
        ("pictures for the GPU", PICTURE_BYTES if gpu else 0),
        ("programs", PROGRAM_BYTES * (1.25 if gpu else 1)),
        ("what is being made", engines * (2 * message + MAKING_BYTES)),
        ("graphs that wait", engines * COMPILE_BYTES),
        ("the process", PROCESS_BYTES + (DRIVER_BYTES if gpu else 0)),
    ]


def total(settings, limit):
    return sum(size for _, size in parts(settings, limit))


def needed_limit(settings):
    """The least limit in whole GiB of which the sum is at most SHARE. Without
    WEIR_ARENA_BYTES the sum grows with the limit, by less than that."""
    gibs = 1
    while total(settings, gibs * GIB) > SHARE * gibs * GIB:
        gibs += 1
    return gibs * GIB


def quantity(text):
    """Kubernetes' 512Mi as a number."""
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3,
             "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    parted = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-z]*)", str(text))
    if not parted or parted[2] not in units:
        raise ValueError(f"{text}: no quantity, as 14Gi or 14G")
    return float(parted[1]) * units[parted[2]]


def memory_limit(text):
    """A container's limit."""
    try:
        limit = quantity(text)
    except ValueError as why:
        raise argparse.ArgumentTypeError(why)
    if limit < 2**20:
        raise argparse.ArgumentTypeError(f"{text}: no server runs in {limit:g} "
                                         "bytes; write 14Gi or 14G")
    return limit


def check(name, value):
    """Raises ArgumentTypeError unless the server would take a setting."""
    if name not in VARIABLES:
        near = difflib.get_close_matches(name, VARIABLES, 1)
        raise argparse.ArgumentTypeError(
            f"{name}: the server has no such flag" +
            (f"; {near[0]}?" if near else ""))
    if name in NUMBERS and not re.fullmatch(r"\d*", value):
        raise argparse.ArgumentTypeError(f"{name}={value}: no whole number")


def setting(word):
    """(name, value) of WEIR_NAME=VALUE; None of what means standard input."""
    if word == "-":
        return None
    parted = re.fullmatch(r"(WEIR_[A-Z0-9_]+)=(\S*)", word)
    if not parted:
        raise argparse.ArgumentTypeError(
            f"{word}: neither WEIR_NAME=VALUE nor -")
    check(*parted.groups())
    return parted.groups()


def settings_of(where, container, maps):
    """The settings of a server's container, whose ConfigMaps are in `maps`: its
    variables go before theirs, and its arguments before both."""
    variables = {}
    for source in container.get("envFrom", ()):
        name = source.get("configMapRef", {}).get("name")
        if name not in maps:
            raise argparse.ArgumentTypeError(
                f"{where} sets variables from what standard input lacks: "
                f"{source}")
        variables.update(maps[name])
    for entry in container.get("env", ()):
        if "valueFrom" in entry and entry["name"] in VARIABLES:
            raise argparse.ArgumentTypeError(
                f"{where}: {entry['name']} comes from elsewhere (valueFrom)")
        variables[entry["name"]] = entry.get("value", "")
    settings = {name: value for name, value in variables.items()
                if name.startswith("WEIR_") and name not in OTHERS}
    name = "the first argument"
    for word in container.get("args", ()):
        if word.startswith("--"):
            flag, _, word = word.partition("=")
            name = variable_of(flag)
        settings[name] = word
    for name, value in settings.items():
        check(name, value)
    return settings


def check_service(service, runtimes):
    """Raises ArgumentTypeError if an InferenceService changes what its runtime
    sets."""
    model = service["spec"].get("predictor", {}).get("model", {})
    if model.get("runtime") not in runtimes:
        return
    for field in ("args", "resources", "env"):
        if field in model and (field != "env" or any(
                entry["name"].startswith("WEIR_") for entry in model["env"])):
            raise argparse.ArgumentTypeError(
                f"the InferenceService {service['metadata']['name']} has "
                f"{field} of its own, which are not read: patch the runtime "
                f"{model['runtime']} instead")


def of_manifests(text):
    """[(name, settings, limit)] of each server in what kustomize prints: the
    Deployment weir, or the runtimes of KServe."""
    try:
        import yaml  # the only need of it
    except ImportError:
        sys.exit("memory.py: reading manifests needs PyYAML (python3-yaml); "
                 "give the settings instead, as WEIR_QUEUE_BYTES=536870912")
    try:
        documents = [document for document in yaml.safe_load_all(text)
                     if isinstance(document, dict) and "kind" in document]
    except yaml.YAMLError as why:
        raise argparse.ArgumentTypeError(f"standard input is no YAML: {why}")
    maps = {document["metadata"]["name"]: document.get("data", {})
            for document in documents if document["kind"] == "ConfigMap"}
    found = []
    for document in documents:
        name, spec = document["metadata"]["name"], document.get("spec", {})
        if (document["kind"], name) == ("Deployment", "weir"):
            wanted, containers = "weir", spec["template"]["spec"]["containers"]
        elif document["kind"] == "ClusterServingRuntime":
            wanted, containers = "kserve-container", spec["containers"]
        else:
            continue
        where = f"the {document['kind']} {name}"
        container = next((container for container in containers
                          if container["name"] == wanted), None)
        if container is None:
            raise argparse.ArgumentTypeError(
                f"{where} has no container {wanted}")
        limits = container.get("resources", {}).get("limits", {})
        if "memory" not in limits:
            raise argparse.ArgumentTypeError(f"{where} has no memory limit")
        found.append((name, settings_of(where, container, maps),
                      quantity(limits["memory"])))
    for document in documents:
        if document["kind"] == "InferenceService":
            check_service(document, [name for name, _, _ in found])
    if not found:
        raise argparse.ArgumentTypeError(
            "standard input has no Deployment weir; give what `kubectl "
            "kustomize` prints")
    return found


def report(name, settings, limit):
    """Prints the sum; true if it is within its share of the limit."""
    if name:
        print(name)
    for what, size in parts(settings, limit):
        print(f"{size / GIB:7.2f} GiB  {what}")
    whole = total(settings, limit)
    print(f"{whole / GIB:7.2f} GiB  in all, {whole / limit:.0%} of a limit of "
          f"{limit / GIB:g} GiB; the least limit is "
          f"{needed_limit(settings) / GIB:g}Gi")
    return whole <= SHARE * limit


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: kubectl kustomize my-weir | "
        "deploy/kubernetes/memory.py -. Exit code 1: more than four fifths of "
        "the limit.")
    parser.add_argument("settings", nargs="+", metavar="NAME=VALUE|-",
                        type=setting, help="the server's environment variables, WEIR_DEVICE "
                        "among them; or - for what kustomize prints")
    parser.add_argument("--limit", type=memory_limit, metavar="SIZE",
                        help="the container's, as 14Gi; by default what it "
                        "needs, or what the manifests say")
    options = parser.parse_args()
    if options.settings == [None]:
        try:
            servers = of_manifests(sys.stdin.read())
        except argparse.ArgumentTypeError as why:
            parser.error(str(why))
    elif None in options.settings:
        parser.error("-: settings stand on the command line or in what it "
                     "reads, not in both")
    else:
        servers = [("", dict(options.settings), 0)]
    for _, settings, _ in servers:
        if "," in settings.get("WEIR_DEVICE", ""):
            parser.error(f"WEIR_DEVICE={settings['WEIR_DEVICE']}: the sum is "
                         "of one device; a pod for each needs a limit for one")
    fit = [report(name, settings,
                  options.limit or limit or needed_limit(settings))
           for name, settings, limit in servers]
    return 0 if all(fit) else 1


if __name__ == "__main__":
    sys.exit(main())
