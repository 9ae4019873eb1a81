#!/usr/bin/env python3
"""deploy/kubernetes/memory.py: what it is asked, and what it says of what it
cannot take. (manifests_test.py holds manifests and guide to its sums.)"""

import re
import subprocess
import sys
import unittest

import manifests
from manifests import KUBERNETES, memory

DEPLOYMENT = """
kind: Deployment
metadata: {name: weir}
spec:
  template:
    spec:
      containers:
        - name: weir
          args: [--http=0.0.0.0:8002]
          env: [{name: WEIR_SERVER, value: "unix:/run/weir/grpc.sock"}]
          envFrom: [{configMapRef: {name: weir-settings-abc}}]
          resources: {limits: {memory: 13Gi}}
---
kind: ConfigMap
metadata: {name: weir-settings-abc}
data: {WEIR_DEVICE: cpu, WEIR_ARENA_BYTES: "1073741824"}
"""
# A runtime, and a service of it.
SERVICE = """
kind: ClusterServingRuntime
metadata: {name: weir-cpu}
spec:
  containers:
    - name: kserve-container
      args: [--device=cpu, --insecure]
      resources: {limits: {memory: 64Gi}}
---
kind: InferenceService
metadata: {name: digits}
spec: {predictor: {model: {runtime: weir-cpu, FIELD}}}
"""


def run(*arguments, given=""):
    """(exit code, what it prints, what it complains of)."""
    done = subprocess.run(
        [sys.executable, KUBERNETES / "memory.py", *arguments], input=given,
        capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def with_args(*words, given=DEPLOYMENT):
    return given.replace("8002]", ", ".join(
        ["8002", *(f"'{word}'" for word in words)]) + "]")


def with_env(entry, given=DEPLOYMENT):
    return given.replace("grpc.sock\"}]", f'grpc.sock"}}, {entry}]')


class Script(unittest.TestCase):

    def test_what_it_cannot_take_is_named(self):
        for arguments, given, words in (
                (["WEIR_QUEUE_BYTE=1"], "", "WEIR_QUEUE_BYTE: the server has "
                 "no such flag; WEIR_QUEUE_BYTES?"),
                (["WEIR_DEVICE=cpu", "QUEUE=1"], "", "QUEUE=1: neither"),
                (["WEIR_QUEUE_BYTES=1G"], "", "WEIR_QUEUE_BYTES=1G: no whole"),
                (["WEIR_IO_THREADS=-1"], "", "WEIR_IO_THREADS=-1: no whole"),
                (["WEIR_DEVICE=cpu", "-"], DEPLOYMENT, "not in both"),
                (["-", "--limit", "13GB"], DEPLOYMENT, "13GB: no quantity"),
                (["-", "--limit", "13"], DEPLOYMENT, "no server runs in 13"),
                (["-", "--limit", "much"], DEPLOYMENT, "much: no quantity"),
                (["-"], "", "has no Deployment weir"),
                (["-"], "what a shell says\n", "has no Deployment weir"),
                (["-"], "- 1\n", "has no Deployment weir"),
                (["-"], "a: [\n", "is no YAML"),
                (["-"], DEPLOYMENT.replace("memory", "cpu"),
                 "has no memory limit"),
                (["-"], DEPLOYMENT.replace("ARENA_BYTES", "ARENA_BYTE"),
                 "WEIR_ARENA_BYTE: the server has no such flag"),
                (["-"], DEPLOYMENT.replace("1073741824", "1Gi"),
                 "WEIR_ARENA_BYTES=1Gi: no whole number"),
                (["-"], DEPLOYMENT.replace("[--http", "[http"),
                 "the first argument: the server has no such flag"),
                (["-"], with_args("--queue-byte=1"),
                 "WEIR_QUEUE_BYTE: the server has no such flag"),
                (["-"], with_args("--queue-bytes=$(BYTES)"),
                 "WEIR_QUEUE_BYTES=$(BYTES): no whole number"),
                (["-"], with_env("{name: WEIR_QUEUE_BYTE, value: '1'}"),
                 "WEIR_QUEUE_BYTE: the server has no such flag"),
                (["-"], with_env("{name: WEIR_QUEUE_BYTES, valueFrom: {"
                                 "configMapKeyRef: {name: a, key: b}}}"),
                 "WEIR_QUEUE_BYTES comes from elsewhere (valueFrom)"),
                (["-"], DEPLOYMENT.replace("name: weir-settings-abc}}",
                                           "name: others}}"),
                 "sets variables from what standard input lacks"),
                (["-"], DEPLOYMENT.replace("configMapRef", "secretRef"),
                 "sets variables from what standard input lacks"),
                (["-"], DEPLOYMENT.replace("- name: weir\n", "- name: other\n"),
                 "the Deployment weir has no container weir"),
                *((["-"], SERVICE.replace("FIELD", field),
                   "the InferenceService digits has " + field.split(":")[0])
                  for field in ("args: [--queue-bytes=1]",
                                "env: [{name: WEIR_STREAMS, value: '1'}]",
                                "resources: {limits: {memory: 1Gi}}"))):
            with self.subTest(arguments=arguments, given=given):
                code, _, complaint = run(*arguments, given=given)
                self.assertEqual(code, 2, complaint)
                self.assertIn(words, complaint)
                self.assertNotIn("Traceback", complaint)

    def test_it_judges_by_the_limit_that_it_is_given(self):
        for arguments, given in ((["WEIR_DEVICE=cpu", "WEIR_MAX_SPACES=0"], ""),
                                 (["-"], DEPLOYMENT)):
            for limit, gib, code in (("1Gi", "1 ", 1), ("64Gi", "64 ", 0),
                                     ("64G", "59.6", 0)):
                answer, said, _ = run(*arguments, "--limit", limit, given=given)
                self.assertEqual(answer, code, said)
                self.assertIn(f"of a limit of {gib}", said)
        self.assertIn("of a limit of 13 GiB", run("-", given=DEPLOYMENT)[1])

    def test_settings_count_wherever_they_are_patched_in(self):
        """Of two the server takes the argument before the variable, and
        Kubernetes the container's variable before the ConfigMap's."""
        size = 3 * 2**28
        messages = f"{(2 * size + memory.UNREAD_BYTES) / 2**30:7.2f} GiB"
        small = with_env("{name: WEIR_QUEUE_BYTES, value: '1048576'}")
        for given in (
                DEPLOYMENT.replace("WEIR_ARENA", f'WEIR_QUEUE_BYTES: "{size}", '
                                   "WEIR_ARENA"),
                with_env(f"{{name: WEIR_QUEUE_BYTES, value: '{size}'}}"),
                with_env(f"{{name: WEIR_QUEUE_BYTES, value: '{size}'}}",
                         DEPLOYMENT.replace(
                             "WEIR_ARENA", 'WEIR_QUEUE_BYTES: "1", WEIR_ARENA')),
                with_args(f"--queue-bytes={size}", given=small),
                with_args("--queue-bytes", str(size), given=small),
                # A container beside it has nothing to do with it.
                with_args(f"--queue-bytes={size}").replace(
                    "        - name: weir\n",
                    "        - {name: proxy, args: [-v], image: p}\n"
                    "        - name: weir\n")):
            with self.subTest(given=given):
                _, said, complaint = run("-", given=given)
                self.assertIn(f"{messages}  messages\n", said, complaint)

    def test_a_service_that_leaves_its_runtime_as_it_is(self):
        field = "env: [{name: AWS_REGION, value: x}], storageUri: s3://a/b"
        for given in (SERVICE.replace("FIELD", field),
                      SERVICE.replace("runtime: weir-cpu, FIELD",
                                      "runtime: triton, args: [--x]")):
            code, said, complaint = run("-", given=given)
            self.assertEqual(code, 0, complaint)
            self.assertIn("of a limit of 64 GiB", said)

    def test_every_flag_of_the_server_is_known(self):
        flags = manifests.flags_of("weir-server") - {"--help", "--version"}
        self.assertEqual(memory.VARIABLES,
                         set(map(manifests.variable_of, flags)))
        text = manifests.help_of("weir-server")
        self.assertLessEqual(memory.NUMBERS, memory.VARIABLES)
        self.assertEqual(
            memory.NUMBERS,
            set(re.findall(r" (?:U?INT\S*) .*\(Env:(\w+)\)", text)))


class Sum(unittest.TestCase):

    def test_a_message_may_be_larger_than_the_queue(self):
        """Alone it is taken then."""
        queue, message = 2**20, 2**28
        for device in ("cpu", "cuda"):
            parts = dict(memory.parts({
                "WEIR_DEVICE": device, "WEIR_QUEUE_BYTES": queue,
                "WEIR_MAX_MESSAGE_BYTES": message}, 2**34))
            self.assertEqual(parts["messages"],
                             2 * message + memory.UNREAD_BYTES)
            self.assertEqual(parts["parsed messages, or unsent replies"],
                             memory.REPLY_TIMES *
                             (message + memory.ALONE_BYTES))
            parts = dict(memory.parts({
                "WEIR_DEVICE": device, "WEIR_QUEUE_BYTES": message,
                "WEIR_MAX_MESSAGE_BYTES": queue}, 2**34))
            self.assertEqual(parts["messages"],
                             2 * message + memory.UNREAD_BYTES)
            self.assertEqual(parts["parsed messages, or unsent replies"],
                             memory.REPLY_TIMES * message)


    def test_spaces_take_what_their_bounds_allow(self):
        def spaces(**settings):
            return dict(memory.parts(
                {"WEIR_DEVICE": "cpu", **settings}, 2**34))["spaces"]

        self.assertEqual(spaces(WEIR_MAX_SPACES="0"), 0)
        self.assertEqual(
            spaces(WEIR_SPACE_TENSORS="100000") -
            spaces(WEIR_SPACE_TENSORS="0"),
            16 * 100000 * memory.KEPT_TENSOR_BYTES)
        # One space alone cannot reach what all together may hold.
        self.assertEqual(
            spaces(WEIR_MAX_SPACES="1", WEIR_SPACE_TENSORS="10") -
            spaces(WEIR_MAX_SPACES="1", WEIR_SPACE_TENSORS="0"),
            10 * memory.KEPT_TENSOR_BYTES)


if __name__ == "__main__":
    unittest.main()
