#!/usr/bin/env python3
"""Builds a target of the Dockerfile and proves the image.

    run.sh image_test.py cpu|cuda

The base comes from debootstrap, with this machine's package sources, and is
committed under the name that the Dockerfile uses; buildah builds on it without
a daemon. The image then runs as an engine would run it: in namespaces of its
own, as PID 1, as its own user, from a root file system mounted read-only.

Environment: TMPDIR, where the images are kept while this runs (15 GB for cpu,
40 GB for cuda); WEIR_IMAGE_BUILD_OPTIONS, more for `buildah bud` (a volume
with a compiler cache). Exits 77 with the reason where the machine cannot do it.
"""

import atexit
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "data"
TARGET = "cpu"
DISK_GB = {"cpu": 15, "cuda": 40}
MAX_CPU_IMAGE_BYTES = 150_000_000
MAX_READY_MS = 1000
MAX_RESIDENT_BYTES = 120_000_000
SKIPPED = 77

# Runs as root in fresh namespaces; the last command becomes PID 1.
START_CONTAINER = """
set -e
root=$1 models=$2 user=$3; shift 3
mount --bind "$root" "$root"
mount --bind "$models" "$root/models"
mount -o remount,ro,bind "$root/models"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -o remount,ro,bind "$root"
ip link set lo up
exec chroot --userspec="$user" --groups= "$root" /usr/bin/env -i "$@"
"""


def say(text):
    print(f"image_test: {text}", flush=True)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True,
                          **options)


def output_of(*command):
    return run(*command, stdout=subprocess.PIPE, text=True).stdout.strip()


def why_not():
    """The reason why this machine cannot build and run images, or None."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("buildah", "debootstrap", "unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"needs {tool}: run deploy/setup.sh --image"
    if subprocess.run(["unshare", "--mount", "--pid", "--net", "--uts",
                       "--ipc", "--fork", "true"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode != 0:
        return "may not make namespaces"
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < DISK_GB[TARGET] * 10**9:
        return (f"needs {DISK_GB[TARGET]} GB in {tempfile.gettempdir()}, "
                f"which has {free // 10**9}")
    return None


class Engine:
    """buildah over a storage of its own, which close() removes."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="weir-image-")
        # What it leaves in TMPDIR if it is interrupted goes with the rest.
        os.mkdir(f"{self.folder}/tmp")
        self.buildah = ["env", f"TMPDIR={self.folder}/tmp", "buildah",
                        "--root", f"{self.folder}/storage",
                        "--runroot", f"{self.folder}/run",
                        "--storage-driver", "vfs"]
        os.environ["BUILDAH_ISOLATION"] = "chroot"

    def close(self):
        subprocess.run([*self.buildah, "rm", "--all"],
                       stdout=subprocess.DEVNULL)
        run("rm", "-rf", "--one-file-system", self.folder)

    def __call__(self, *arguments):
        return output_of(*self.buildah, *arguments)

    def make_base(self, name):
        container = self("from", "--pull-never", "scratch")
        root = pathlib.Path(self("mount", container))
        sources = debian_sources()
        with open(f"{self.folder}/debootstrap.log", "w",
                  encoding="utf-8") as log:
            try:
                # It mounts /proc and /sys: those end with its namespace.
                run("unshare", "--mount", "--pid", "--fork", "--kill-child",
                    "debootstrap", "--variant=minbase", "bookworm", root,
                    *sources["bookworm"][:1], stdout=log, stderr=log)
            except subprocess.CalledProcessError:
                print(pathlib.Path(log.name).read_text(encoding="utf-8"))
                raise
        bring_settings(root, sources)
        self("commit", "--quiet", "--format", "docker", "--rm", container,
             name)

    def build(self, target, name):
        run(*self.buildah, "bud", "--pull-never", "--format", "docker",
            "--target", target, "--tag", name,
            *os.environ.get("WEIR_IMAGE_BUILD_OPTIONS", "").split(), ROOT)

    def inspect(self, name):
        return json.loads(self("inspect", "--type", "image", name))

    def root_of(self, name):
        return self("mount", self("from", "--pull-never", name))


def debian_sources():
    """What apt has of Debian here: release to [its address, suite lines]."""
    lines = output_of("apt-get", "indextargets", "--format",
                      "$(REPO_URI) $(RELEASE) $(COMPONENT)",
                      "Created-By: Packages", "Origin: Debian")
    sources = {"bookworm": []}
    for line in dict.fromkeys(lines.splitlines()):
        address, release, component = line.split()
        known = sources.setdefault(release, [address])
        if not known:
            known.append(address)
        known.append(f"deb {address} {release} {component}")
    return sources


def bring_settings(root, sources):
    """Makes the base reach packages as this machine does."""
    lines = [line for known in sources.values() for line in known[1:]]
    if lines:
        (root / "etc/apt/sources.list").write_text(
            "\n".join(lines) + "\n", encoding="utf-8")
    wanted = re.compile(r"Acquire::(https?::Proxy|Check-)")
    settings = [line for line in output_of("apt-config", "dump").splitlines()
                if wanted.match(line)]
    (root / "etc/apt/apt.conf.d/90-host").write_text(
        "\n".join(settings) + "\n", encoding="utf-8")
    if os.path.exists("/etc/pip.conf"):
        shutil.copy("/etc/pip.conf", root / "etc/pip.conf")
    # Installing ca-certificates takes these up.
    shutil.copytree("/usr/local/share/ca-certificates",
                    root / "usr/local/share/ca-certificates",
                    dirs_exist_ok=True)
    # As the image of that name has it: no fsync for every unpacked file.
    (root / "etc/dpkg/dpkg.cfg.d/speedup").write_text("force-unsafe-io\n",
                                                      encoding="ascii")
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(root / leftover)
        (root / leftover / "partial").mkdir(parents=True)


class Container:
    """One run of the image: its init process and what it prints."""

    def __init__(self, root, config, models, arguments=None):
        self.user = config["User"]
        self.environment = config["Env"]
        command = config["Entrypoint"] + (
            config["Cmd"] if arguments is None else arguments)
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc",
             "--fork", "--kill-child", "bash", "-c", START_CONTAINER, "start",
             root, models, self.user, *self.environment, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def read_until(self, word, seconds=120):
        """Returns what was printed until the word was among it."""
        text = ""
        while word not in text:
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            part = self.process.stdout.read1() if ready else b""
            if not part:
                raise AssertionError(f"no '{word}' in: {text}")
            text += part.decode()
        return text

    def init(self):
        """PID 1's number outside its namespace."""
        pid = self.process.pid
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        return int(children.read_text(encoding="ascii").split()[0])

    def execute(self, *command):
        """Runs a command beside PID 1, as an engine's exec does."""
        uid, gid = self.user.split(":")
        return subprocess.run(
            ["nsenter", "--target", str(self.init()), "--mount", "--pid",
             "--net", "--uts", "--ipc", "--root", "--wd", "--setuid", uid,
             "--setgid", gid, "/usr/bin/env", "-i", *self.environment,
             *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60)

    def kill(self):
        """Ends it, if it runs, with everything in it."""
        if self.process.poll() is None:
            # A change of user undoes --kill-child, so killing unshare is not
            # enough; PID 1 takes its whole namespace along, and unshare.
            try:
                os.kill(self.init(), signal.SIGKILL)
            except (IndexError, OSError):  # not begun, or just ended
                self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class ImageTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.engine = Engine()
        # Interrupted too, it leaves nothing behind.
        atexit.register(cls.engine.close)
        dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
        base = re.search(r"^ARG BASE=(\S+)$", dockerfile, re.MULTILINE)[1]
        cls.base_name = base
        cls.name = f"weir-test:{TARGET}"
        say(f"{base} from debootstrap")
        cls.engine.make_base(base)
        say(f"{cls.name} from the Dockerfile")
        cls.engine.build(TARGET, cls.name)
        cls.base = cls.engine.inspect(base)
        cls.image = cls.engine.inspect(cls.name)
        cls.config = cls.image["Docker"]["config"]
        cls.root = cls.engine.root_of(cls.name)

    def start(self, arguments=None):
        # Not MODELS itself: what stands beside the models is no model.
        models = tempfile.TemporaryDirectory()
        self.addCleanup(models.cleanup)
        shutil.copytree(MODELS / "digits", f"{models.name}/digits")
        shutil.copy(MODELS / "digits_samples.f32", f"{models.name}/digits")
        os.chmod(models.name, 0o755)
        container = Container(self.root, self.config, models.name, arguments)
        self.addCleanup(container.kill)
        return container

    def test_configuration(self):
        config = self.config
        self.assertEqual(config["User"], "65532:65532")
        self.assertEqual(config["Entrypoint"], ["/usr/local/bin/weir-server"])
        self.assertEqual(config["Healthcheck"]["Test"],
                         ["CMD", "/usr/local/bin/weir", "status", "--probe"])
        self.assertEqual(set(config["ExposedPorts"]), {"8001/tcp", "8002/tcp"})
        version = output_of("chroot", self.root, *config["Entrypoint"],
                            "--version")
        label = config["Labels"]["org.opencontainers.image.version"]
        self.assertIn(label, version.split())
        self.assertEqual(config["Labels"]["org.opencontainers.image.base.name"],
                         self.base_name)

    def test_its_list_of_parts_names_every_package_and_what_is_linked(self):
        share = pathlib.Path(self.root, "usr/local/share/weir")
        text = (share / "sbom.cdx.json").read_text("utf-8")
        self.assertIsNone(
            JsonStrictValidator(SchemaVersion.V1_6).validate_str(text))
        listed = json.loads(text)
        weir = listed["metadata"]["component"]
        version = output_of("chroot", self.root, "weir-server", "--version")
        self.assertEqual(["weir-server", weir["version"], "build",
                          weir["properties"][0]["value"]], version.split())
        parts = {}
        for part in listed["components"]:
            self.assertTrue(part["version"] and part["licenses"], part["name"])
            how = part["properties"][0]["value"]
            parts.setdefault(how, {})[part["name"]] = part["version"]
        installed = dict(line.split() for line in output_of(
            "chroot", self.root, "dpkg-query", "-W",
            "-f=${Package} ${Version}\\n").splitlines())
        wheels = parts["library"].keys() - installed.keys()
        self.assertEqual({**parts["library"], **parts["beside them"]},
                         {**installed, **{name: parts["library"][name]
                                          for name in wheels}})
        self.assertEqual(wheels, {
            "cpu": set(),
            "cuda": {"nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-nvjpeg",
                     "nvidia-cudnn-cu13"}}[TARGET])
        self.assertLessEqual({"libgrpc-dev", "libgrpc++-dev"},
                             parts["part"].keys())
        notices = {file.stem for file in (share / "licenses").iterdir()}
        self.assertLessEqual(
            {name.replace("-", "_") if name.startswith("nvidia") else name
             for name in parts["part"]}, notices)
        # What the build id is of: the sources that are here, and the libraries
        # that are there.
        made_of = (share / "build_parts.txt").read_text("utf-8").splitlines()
        with tempfile.NamedTemporaryFile() as here:
            run(ROOT / "cmake/build_id.py", "--list", here.name,
                stdout=subprocess.DEVNULL)
            self.assertEqual(
                [line for line in made_of if line.startswith("source ")],
                [line for line in here.read().decode().splitlines()
                 if line.startswith("source ")])
        for line in made_of:
            kind, name, *found = line.split()
            if kind == "package" and name in installed:
                self.assertEqual(found, [installed[name]], name)

    def test_size(self):
        def layers(image):
            return [layer["size"]
                    for layer in json.loads(image["Manifest"])["layers"]]
        above_base = sum(layers(self.image)) - sum(layers(self.base))
        say(f"{above_base / 1e6:.1f} MB above the base")
        if TARGET == "cpu":
            self.assertLessEqual(above_base, MAX_CPU_IMAGE_BYTES)

    def test_every_library_is_there(self):
        folder = pathlib.Path(self.root, "usr/local")
        for file in [*folder.glob("bin/*"), *folder.glob("lib/*.so*")]:
            inside = f"/{file.relative_to(self.root)}"
            found = output_of("chroot", self.root, "ldd", inside)
            self.assertNotIn("not found", found, inside)

    def test_serves_as_pid_1_and_drains(self):
        container = self.start()
        container.read_until("ready:")
        health = self.config["Healthcheck"]["Test"][1:]
        probe = container.execute(*health)
        self.assertEqual(probe.returncode, 0, probe.stdout)
        infer = container.execute(
            "weir", "infer", "digits", "--input",
            "image=@/models/digits/digits_samples.f32:float:360x1x8x8")
        self.assertEqual(infer.returncode, 0, infer.stdout)

        status = pathlib.Path(f"/proc/{container.init()}/status").read_text(
            encoding="ascii")
        resident = 1024 * int(re.search(r"^VmRSS:\s+(\d+) kB", status,
                                        re.MULTILINE)[1])
        say(f"{resident / 1e6:.1f} MB resident")
        self.assertLessEqual(resident, MAX_RESIDENT_BYTES)
        self.assertRegex(status, r"(?m)^Uid:\s+65532\s+65532\s+65532\s+65532$")
        self.assertRegex(status, r"(?m)^CapEff:\s+0+$")
        self.assertRegex(status, r"(?m)^NSpid:\s+\d+\s+1$")

        os.kill(container.init(), signal.SIGTERM)
        self.assertEqual(container.process.wait(timeout=60), 0)

    def test_it_is_soon_ready(self):
        took = []
        for _ in range(3):  # the machine may have other work
            container = self.start()
            container.read_until("ready:")
            took.append((time.monotonic() - container.started) * 1e3)
            container.kill()
        say(f"ready after {', '.join(f'{ms:.0f}' for ms in took)} ms")
        self.assertLessEqual(min(took), MAX_READY_MS)

    def test_an_orphan_leaves_no_zombie(self):
        container = self.start()
        container.read_until("ready:")
        # The shell ends at once; its child is then PID 1's.
        orphan = container.execute("sh", "-c", "sleep 0.1 & echo $!")
        self.assertEqual(orphan.returncode, 0, orphan.stdout)
        init = container.init()
        children = pathlib.Path(f"/proc/{init}/task/{init}/children")
        deadline = time.monotonic() + 30
        while children.read_text(encoding="ascii").strip():
            self.assertLess(time.monotonic(), deadline, "never reaped")
            time.sleep(0.05)

    def test_nothing_is_left_of_a_killed_container(self):
        container = self.start()
        container.read_until("ready:")
        init = container.init()
        container.kill()
        self.assertFalse(os.path.exists(f"/proc/{init}"))

    def test_own_arguments_never_serve_in_the_clear(self):
        container = self.start(arguments=["--drain-delay=0"])
        container.read_until("--insecure")
        self.assertEqual(container.process.wait(timeout=60), 2)

    def test_a_missing_gpu_is_named(self):
        if TARGET != "cuda":
            self.skipTest("the cpu image has no CUDA backend")
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("this machine has an NVIDIA GPU")
        container = self.start(arguments=["--insecure", "--device=cuda"])
        say(container.read_until("weir-server:").strip())
        # The code of a device that is lost, or was never there.
        self.assertEqual(container.process.wait(timeout=60), 3)


def main():
    global TARGET
    if len(sys.argv) != 2 or sys.argv[1] not in DISK_GB:
        sys.exit("usage: image_test.py cpu|cuda")
    TARGET = sys.argv.pop()
    reason = why_not()
    if reason is not None:
        say(f"skipped: {reason}")
        sys.exit(SKIPPED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unittest.main(verbosity=2)


if __name__ == "__main__":
    main()
