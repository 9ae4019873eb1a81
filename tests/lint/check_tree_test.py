#!/usr/bin/env python3
"""Tests of check_tree.py: each rule finds its offender and nothing else."""

import pathlib
import tempfile
import unittest

import check_tree


class CheckTreeTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text=""):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def findings(self, path, text):
        file = self.write(path, text)
        found = check_tree.check_tree(self.root, of_whole_tree=False)
        file.unlink()
        return found

    def accepts(self, path, text):
        self.assertEqual(self.findings(path, text), [])

    def refuses(self, path, text, reason):
        found = self.findings(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(reason, found[0])
        self.assertTrue(found[0].startswith(path), found[0])

    def test_layer_includes_left_only(self):
        self.accepts("kernels/graph/plan.cc",
                     '#include "kernels/ops/op.h"\n#include <vector>\n')
        self.refuses("kernels/ops/op.cc",
                     '#include "kernels/graph/plan.h"\n', "stands left of")
        self.refuses("kernels/device/cpu/strand.cc",
                     '#include "kernels/tensor/shape.h"\n', "stands left of")

    def test_kernels_stay_free_of_the_wire(self):
        for header in ("<grpcpp/grpcpp.h>", "<google/protobuf/message.h>",
                       "<onnx/onnx_pb.h>"):
            self.refuses("kernels/eval/work.cc", f"#include {header}\n",
                         "neither gRPC nor protobuf")
        self.refuses("kernels/eval/work.cc", '#include "server/options.h"\n',
                     "kernels may not include server")

    def test_kinds_of_device_are_told_apart_where_they_may_be(self):
        branch = "if (info.kind == DeviceKind::kCpu) return;\n"
        reason = "a property of the device"
        self.refuses("kernels/graph/compiler.cc", branch, reason)
        self.refuses("kernels/eval/engine.cc", branch, reason)
        self.refuses("server/server.cc", branch, reason)
        self.accepts("kernels/device/cuda/cuda_device.cc", branch)
        self.accepts("kernels/ops/matmul.cc", branch)
        self.accepts("tests/eval/modes_test.cc", branch)
        self.accepts("kernels/graph/compiler.cc", "// DeviceKind::kCpu\n")
        self.accepts("kernels/graph/compiler.cc", "DeviceKind kind = here;\n")

    def test_client_never_includes_kernels(self):
        self.accepts("client/cpp/client.cc",
                     '#include "proto/weir/v1/evaluator.grpc.pb.h"\n')
        self.refuses("client/cpp/client.cc",
                     '#include "kernels/base/mutex.h"\n',
                     "client may not include kernels")

    def test_grpc_only_in_the_transport(self):
        include = "#include <grpcpp/grpcpp.h>\n"
        for path in ("server/rpc/call.cc", "server/server.cc"):
            self.accepts(path, include)
        self.refuses("server/services/health.cc", include, "gRPC belongs into")
        self.refuses("server/models/repository.cc", include,
                     "gRPC belongs into")
        self.refuses("server/models/repository.cc",
                     "grpc::Status Load();\n", "a gRPC type")
        self.accepts("server/models/repository.cc",
                     "// Unlike grpc::Status.\n/* grpc::Status */ int x;\n")

    def test_evaluations_know_neither_services_nor_the_transport(self):
        path = "server/evaluation/binding.cc"
        for header in ("server/bytes/byte_view.h", "kernels/eval/work.h",
                       "server/models/repository.h"):
            self.accepts(path, f'#include "{header}"\n')
        for header in ("server/services/explain.h", "server/rpc/server_call.h",
                       "proto/weir/v1/graph.pb.h", "server/observe/metrics.h"):
            self.refuses(path, f'#include "{header}"\n',
                         "server/evaluation/ may not include")
        self.refuses("server/bytes/call_arena.h",
                     '#pragma once\n#include "server/models/repository.h"\n',
                     "server/bytes/ may not include")

    def test_attributes_are_read_once_for_all_devices(self):
        read = 'const int64_t axis = node.attributes.Int("axis", 0);\n'
        self.accepts("kernels/ops/gather.cc", read)
        self.accepts("kernels/ops/cuda/matmul.cc",
                     "const bool has_c = attributes.beta != 0;\n")
        for text in (read, "Read(info->attributes);\n"):
            self.refuses("kernels/ops/cuda/movement.cc", text,
                         "read once for both devices")

    def test_names_say_what_a_file_holds(self):
        for name in ("utils.h", "string_utils.h", "test_helpers.h",
                     "common.h"):
            self.refuses(f"server/{name}", "#pragma once\n",
                         "name what it holds")
        self.accepts("server/commonality.h", "#pragma once\n")

    def test_headers_guard_themselves(self):
        self.refuses("server/options.h", "int x;\n", "#pragma once")

    def test_forbidden_text(self):
        self.refuses("server/a.cc", "// TO" + "DO(me): later\n",
                     "note to self")
        self.refuses("server/a.cc", "absl::Mutex m;\n", "ThreadSanitizer")
        self.accepts("server/a.cc", "// Unlike absl::Mutex.\n")
        self.refuses("server/a.cc", "auto v = std::views::all(x);\n",
                     "range views")

    def test_a_folder_that_is_no_tree_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(check_tree.main([folder]), 2)

    def test_silenced_checks_are_named_and_asked_for(self):
        self.write(".clang-tidy",
                   "Checks: >\n  -*,\n  google-*,\n  -google-todo\n"
                   "WarningsAsErrors: '*'\n")
        self.accepts("server/a.cc", "long x;  // NOLINT(google-runtime-int)\n")
        self.refuses("server/a.cc", "long x;  // NOLINT\n", "name the check")
        self.refuses("server/a.cc", "// NOLINTBEGIN: because\n",
                     "name the check")
        self.refuses("server/a.cc", "int x;  // NOLINT(google-todo)\n",
                     "does not ask for google-todo")
        self.refuses("server/a.cc",
                     "// NOLINTNEXTLINE(google-int, readability-x)\n",
                     "does not ask for readability-x")

    def test_pages_name_what_is_there(self):
        self.write("kernels/base/mutex.h", "#pragma once\n")
        self.accepts("ARCHITECTURE.md",
                     "`kernels/base/mutex.h`, `kernels/base/`, "
                     "`kernels/device/NAME/`, `kernels/base/mu*.h`, "
                     "`tests/x --accept` (`Listen`), `kernels/{base,ops}`\n")
        self.refuses("ARCHITECTURE.md", "see `kernels/base/lock.h`\n",
                     "there is no kernels/base/lock.h")
        self.refuses("docs/limits.md", "\nsee `kernels/base/l*.h`\n",
                     "there is no kernels/base/l*.h")

    TOPICS = "| `tests/` | mirrors the tree; also `fuzz`, `lint` |\n"

    def mirrored(self, *paths):
        for path in paths:
            self.write(path)
        return list(check_tree.check_mirror(self.root))

    def test_tests_mirror_the_tree(self):
        self.write("ARCHITECTURE.md", self.TOPICS)
        self.assertEqual(self.mirrored(
            "tests/fuzz/x", "tests/lint/x", "kernels/base/a.h",
            "server/rpc/a.h", "client/cli/a.h", "tests/base/a_test.cc",
            "tests/rpc/a_test.cc", "tests/client/a_test.cc"), [])
        [finding] = self.mirrored("tests/oddities/a_test.cc")
        self.assertIn("tests/oddities: mirrors no folder", finding)

    def test_an_exemption_must_exempt_something(self):
        self.write("ARCHITECTURE.md", self.TOPICS)
        [finding] = self.mirrored("tests/fuzz/x")
        self.assertIn("there is no tests/lint", finding)
        for allowed, text in (
                (check_tree.GRPC_ALLOWED, "#include <grpcpp/grpcpp.h>\n"),
                (check_tree.KIND_ALLOWED, "DeviceKind::kCpu\n")):
            for number, part in enumerate(allowed[1:]):
                end = {"/": f"{number}.cc", ".": "cc"}.get(part[-1], "")
                self.write(part + end, text)
        # The other text is in none of these files.
        unused = check_tree.check_exemptions(self.root)
        self.assertEqual(len(unused), 2, unused)
        for allowed, finding in zip(
                (check_tree.GRPC_ALLOWED, check_tree.KIND_ALLOWED), unused):
            self.assertIn(f"nothing in {allowed[0]} ", finding)


if __name__ == "__main__":
    unittest.main()
