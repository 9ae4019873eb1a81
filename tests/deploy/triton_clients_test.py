#!/usr/bin/env python3
"""What Triton's own clients ask of a server: the calls of tritonclient, and
those that the load tester perf_analyzer makes, in its order and with its
parameters. The tester itself runs in tests/server/perf_analyzer.py, where its C
library is new enough."""

import concurrent.futures
import os
import queue
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
from google.protobuf import json_format
import tritonclient.grpc as grpcclient
from tritonclient.grpc import service_pb2
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException
import grpc

from manifests import BIN, ROOT
from running import Server

sys.path.append(str(ROOT / "tests" / "server"))
import perf_analyzer  # pylint: disable=wrong-import-position


def to_json(message):
    """As perf_analyzer reads a reply: every plain field, set or not."""
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True)


class WithServer(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())


class Client(WithServer):
    """tritonclient."""

    def setUp(self):
        self.client = grpcclient.InferenceServerClient(self.server.grpc)
        self.addCleanup(self.client.close)
        self.image = grpcclient.InferInput("image", [2, 1, 8, 8], "FP32")
        self.image.set_data_from_numpy(np.zeros((2, 1, 8, 8), np.float32))

    def test_readiness_is_never_an_error(self):
        self.assertTrue(self.client.is_server_live())
        self.assertTrue(self.client.is_server_ready())
        self.assertTrue(self.client.is_model_ready("digits"))
        self.assertTrue(self.client.is_model_ready("digits", "1"))
        self.assertFalse(self.client.is_model_ready("digits", "2"))
        self.assertFalse(self.client.is_model_ready("letters"))

    def test_what_is_advertised_is_served(self):
        metadata = self.client.get_server_metadata(as_json=True)
        self.assertCountEqual(metadata["extensions"],
                              ["model_configuration", "statistics"])
        config = self.client.get_model_config("digits", as_json=True)["config"]
        self.assertEqual(config["name"], "digits")
        self.assertEqual(config["max_batch_size"], 512)
        self.assertEqual(config["input"], [{
            "name": "image", "data_type": "TYPE_FP32",
            "dims": ["1", "8", "8"]}])
        self.assertEqual(config["version_policy"],
                         {"latest": {"num_versions": 1}})
        self.assertEqual(config["instance_group"], [{
            "name": "digits_0", "count": 1, "kind": "KIND_CPU"}])

    def test_statistics_count_what_was_inferred(self):
        def read():
            [model] = self.client.get_inference_statistics(
                "digits").model_stats
            return model
        before = read()
        for _ in range(3):
            self.client.infer("digits", [self.image])
        after = read()
        self.assertEqual(after.inference_count - before.inference_count, 6)
        self.assertEqual(after.execution_count - before.execution_count, 3)
        self.assertEqual(after.inference_stats.success.count -
                         before.inference_stats.success.count, 3)
        self.assertEqual(after.inference_stats.fail.count,
                         before.inference_stats.fail.count)
        self.assertAlmostEqual(after.last_inference / 1000, time.time(),
                               delta=60)
        everything = self.client.get_inference_statistics(as_json=True)
        self.assertEqual([model["name"] for model in everything["model_stats"]],
                         ["digits"])

    def test_unknown_models_are_not_found(self):
        for ask in (self.client.get_model_config,
                    self.client.get_model_metadata,
                    self.client.get_inference_statistics):
            with self.assertRaises(InferenceServerException) as raised:
                ask("letters")
            self.assertEqual(raised.exception.status(), "StatusCode.NOT_FOUND")
            self.assertIn("letters", raised.exception.message())

    def test_priority_and_timeout_are_taken(self):
        result = self.client.infer("digits", [self.image], priority=2,
                                   timeout=1_000_000)
        self.assertEqual(result.as_numpy("digit").shape, (2,))
        with self.assertRaises(InferenceServerException) as raised:
            self.client.infer("digits", [self.image], timeout=-1)
        self.assertEqual(raised.exception.status(),
                         "StatusCode.INVALID_ARGUMENT")
        self.assertIn("timeout", raised.exception.message())


class LoadTester(WithServer):
    """perf_analyzer -m digits -i grpc, call by call."""

    def setUp(self):
        self.channel = grpc.insecure_channel(self.server.grpc)
        self.addCleanup(self.channel.close)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def read_model(self, version=""):
        """What the tester learns of a model before it sends anything: the
        request that it will send."""
        name = {"name": "digits", "version": version}
        metadata = to_json(self.stub.ModelMetadata(
            service_pb2.ModelMetadataRequest(**name)))
        config = to_json(self.stub.ModelConfig(
            service_pb2.ModelConfigRequest(**name)))["config"]
        extensions = self.stub.ServerMetadata(
            service_pb2.ServerMetadataRequest()).extensions
        self.assertIn("statistics", extensions)
        self.assertNotIn("sequence_batching", config)
        self.assertNotIn("ensemble_scheduling", config)
        self.assertNotIn("model_transaction_policy", config)
        batched = config["max_batch_size"] > 0
        self.assertTrue(batched)
        self.assertCountEqual([tensor["name"] for tensor in config["input"]],
                              [tensor["name"] for tensor in metadata["inputs"]])
        self.assertLessEqual({tensor["name"] for tensor in config["output"]},
                             {tensor["name"] for tensor in metadata["outputs"]})
        request = service_pb2.ModelInferRequest(model_name="digits",
                                                model_version=version)
        # Always there, in every mode.
        request.parameters["triton_enable_empty_final_response"].bool_param = \
            True
        for tensor in metadata["inputs"]:
            shape = [int(extent) for extent in tensor["shape"]]
            if batched:
                shape[0] = 1
            self.assertNotIn(-1, shape)
            self.assertEqual(tensor["datatype"], "FP32")
            request.inputs.add(name=tensor["name"], shape=shape,
                               datatype=tensor["datatype"])
            request.raw_input_contents.append(
                np.zeros(shape, np.float32).tobytes())
        for tensor in metadata["outputs"]:
            request.outputs.add(name=tensor["name"])
        return request

    def read_statistics(self):
        [model] = self.stub.ModelStatistics(
            service_pb2.ModelStatisticsRequest(name="digits")).model_stats
        stats = model.inference_stats
        self.assertEqual(len({stats.queue.count, stats.compute_input.count,
                              stats.compute_infer.count,
                              stats.compute_output.count}), 1)
        return {"inferences": model.inference_count,
                "executions": model.execution_count,
                "success": stats.success.count, "fail": stats.fail.count,
                "request_ns": stats.success.ns,
                "parts_ns": stats.queue.ns + stats.compute_input.ns +
                            stats.compute_infer.ns + stats.compute_output.ns,
                "cached": stats.cache_hit.count}

    def measure(self, send):
        """One window: the statistics' growth while `send` sends, which returns
        how many requests it sent."""
        before = self.read_statistics()
        sent = send()
        after = self.read_statistics()
        grown = {name: after[name] - before[name] for name in after}
        self.assertEqual(grown["success"], sent)
        self.assertEqual(grown["inferences"], sent)
        self.assertEqual(grown["executions"], sent)
        self.assertEqual(grown["fail"], 0)
        self.assertEqual(grown["cached"], 0)
        # What it prints as "overhead" is the difference.
        self.assertEqual(grown["request_ns"], grown["parts_ns"])
        self.assertGreater(grown["request_ns"], 0)

    def check(self, request, response):
        self.assertEqual([output.name for output in response.outputs],
                         [output.name for output in request.outputs])
        self.assertEqual(len(response.raw_output_contents),
                         len(request.outputs))
        self.assertFalse(response.parameters)

    def test_concurrency_mode(self):
        request = self.read_model()

        def one_thread(_):
            for _ in range(20):
                self.check(request, self.stub.ModelInfer(request))
            return 20

        for concurrency in (1, 8):
            with self.subTest(concurrency=concurrency), \
                    concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
                self.measure(lambda: sum(
                    pool.map(one_thread, range(concurrency))))

    def test_asynchronous_concurrency_mode(self):
        """--async: one thread keeps 64 calls in flight."""
        request = self.read_model(version="1")

        def send():
            done = queue.Queue()
            for _ in range(64):
                self.stub.ModelInfer.future(request).add_done_callback(done.put)
            for left in range(500, 0, -1):
                self.check(request, done.get(timeout=60).result())
                if left > 64:
                    self.stub.ModelInfer.future(request).add_done_callback(
                        done.put)
            return 500

        self.measure(send)

    def test_request_rate_mode(self):
        """--request-rate-range 500, with headers (-H)."""
        request = self.read_model()

        def send():
            calls = []
            start = time.monotonic()
            for i in range(100):
                time.sleep(max(0, start + i / 500 - time.monotonic()))
                calls.append(self.stub.ModelInfer.future(
                    request, metadata=[("x-request-id", f"perf-{i}")]))
            for call in calls:
                self.check(request, call.result(timeout=60))
            return len(calls)

        self.measure(send)

    def test_it_hears_why_it_cannot(self):
        """Modes that are not offered end with a reason."""
        with self.assertRaises(grpc.RpcError) as raised:
            self.stub.SystemSharedMemoryRegister(
                service_pb2.SystemSharedMemoryRegisterRequest(
                    name="region", key="/region", byte_size=64))
        self.assertEqual(raised.exception.code(),
                         grpc.StatusCode.UNIMPLEMENTED)
        request = self.read_model()
        request.inputs[0].shape[0] = 600
        with self.assertRaises(grpc.RpcError) as raised:
            self.stub.ModelInfer(request)
        self.assertEqual(raised.exception.code(),
                         grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("512", raised.exception.details())


class LoadTestingPage(WithServer):
    """docs/load_testing.md."""

    PAGE = (ROOT / "docs" / "load_testing.md").read_text("utf-8")

    def test_the_testers_commands_are_those_that_are_tried(self):
        tried = [arguments for _, arguments, _ in perf_analyzer.MODES]
        commands = re.findall(r"^    (perf_analyzer .*)$", self.PAGE,
                              re.MULTILINE)
        self.assertGreaterEqual(len(commands), 4)
        for command in map(shlex.split, commands):
            self.assertEqual(" ".join(command[:7]),
                             "perf_analyzer -m digits -i grpc -u 127.0.0.1:8001")
            self.assertIn(command[7:], tried)

    def test_our_own_commands_run(self):
        commands = re.findall(r"^    ((?:head|weir) .*)$", self.PAGE,
                              re.MULTILINE)
        self.assertEqual(len(commands), 3)
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["bash", "-euc",
                 "\n".join(commands).replace("/tmp/", f"{folder}/")],
                cwd=ROOT, capture_output=True, text=True, check=False,
                env={**os.environ, "WEIR_SERVER": self.server.grpc,
                     "PATH": f"{BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("errors", done.stdout)


if __name__ == "__main__":
    unittest.main()
