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

    def test_folders_of_the_server_include_left_only(self):
        self.accepts("server/observe/metrics.cc",
                     '#include "server/rpc/transport.h"\n')
        self.accepts("server/services/explain.cc",
                     '#include "server/engines.h"\n')
        self.accepts("server/server.cc", '#include "server/health.h"\n')
        for path, header in (("rpc/transport.cc", "observe/metrics.h"),
                             ("observe/metrics.cc", "options.h"),
                             ("options.cc", "engines.h"),
                             ("engines.cc", "services/explain.h"),
                             ("services/explain.cc", "health.h")):
            self.refuses(f"server/{path}", f'#include "server/{header}"\n',
                         "stands left of")

    def declarations(self):
        return list(check_tree.check_declarations(self.root))

    def test_a_class_is_declared_where_its_layer_is_known(self):
        self.write("kernels/ops/registry.h",
                   "class WEIR_EXPORT OpRegistry {\n};\nstruct Op final\n"
                   "    : Base {\n};\n")
        self.write("kernels/ops/op.h", "class OpRegistry;\n")
        self.write("kernels/graph/plan.h", "class OpRegistry;\n")
        self.write("kernels/device/device.h", "class Elsewhere;\n")
        self.assertEqual(self.declarations(), [])
        self.write("kernels/device/devices.h", "\nclass OpRegistry;\n")
        self.write("kernels/tensor/tensor.h", "struct Op;\n")
        one, other = self.declarations()
        self.assertTrue(one.startswith("kernels/device/devices.h:2:"), one)
        self.assertIn("may not declare OpRegistry", one)
        self.assertIn("may not declare Op", other)

    def test_the_code_of_a_header_stands_in_its_layer(self):
        self.write("kernels/ops/pooling.h", "")
        own = '#include "kernels/ops/pooling.h"\n'
        self.write("kernels/ops/cuda/pooling.cc", own)
        self.write("tests/ops/pooling.cc", own)
        self.write("kernels/graph/pools.cc", own)
        self.assertEqual(self.declarations(), [])
        self.write("kernels/graph/pooling.cc", own)
        [finding] = self.declarations()
        self.assertIn("kernels/graph/pooling.cc: kernels/ops/pooling.h stands "
                      "in ops", finding)

    def test_kernels_stay_free_of_the_wire(self):
        for header in ("<grpcpp/grpcpp.h>", "<google/protobuf/message.h>",
                       "<onnx/onnx_pb.h>"):
            self.refuses("kernels/eval/work.cc", f"#include {header}\n",
                         "neither gRPC nor protobuf")
        self.refuses("kernels/eval/work.cc", '#include "server/options.h"\n',
                     "kernels may not include server")

    def test_kernels_know_no_flags(self):
        reason = "no flags of the server"
        self.refuses("kernels/device/lane.cc",
                     'Full("(--arena-bytes)");\n', reason)
        self.refuses("kernels/ops/op.h",
                     "#pragma once\n// Behind --enable-test-operators.\n",
                     reason)
        self.accepts("kernels/device/lane.cc", "while (--left > 0) {\n")
        self.accepts("kernels/device/cuda/nvrtc.cc", '"--define-macro=A"\n')
        self.accepts("server/engines.cc", 'name = "--arena-bytes";\n')

    def test_kinds_of_device_are_told_apart_where_they_may_be(self):
        branch = "if (info.kind == DeviceKind::kCpu) return;\n"
        reason = "a property of the device"
        self.refuses("kernels/graph/compiler.cc", branch, reason)
        self.refuses("kernels/eval/engine.cc", branch, reason)
        self.refuses("server/server.cc", branch, reason)
        self.accepts("kernels/device/cuda/cuda_device.cc", branch)
        self.refuses("kernels/ops/matmul.cc", branch, reason)
        for asked in ("core.device->info().kind", "device_info.kind",
                      "device.kind", "info().kind"):
            self.refuses("kernels/graph/planner.cc",
                         f"if ({asked} == host) return;\n", reason)
        self.accepts("kernels/graph/planner.cc", "if (policy.kind == 1) {}\n")
        self.accepts("kernels/ops/cuda/matmul.cc", branch)
        self.accepts("tests/eval/modes_test.cc", branch)
        self.accepts("kernels/graph/compiler.cc", "// DeviceKind::kCpu\n")
        self.accepts("kernels/graph/compiler.cc", "DeviceKind kind = here;\n")

    def test_kernels_ask_in_one_place_who_holds_an_object(self):
        for asked in ("if (plan.use_count() > 1) return;\n",
                      "auto self = weak.lock();\n",
                      "auto self = weak_self.lock();\n"):
            self.refuses("kernels/graph/plan_cache.cc", asked, "holders.h")
            self.accepts("kernels/base/holders.h", "#pragma once\n" + asked)
            self.accepts("server/server.cc", asked)
        self.accepts("kernels/graph/plan_cache.cc", "mu_.lock();\n")

    def test_kernels_ask_in_one_way_to_stop(self):
        asked = "std::stop_source stop;\n"
        self.refuses("kernels/graph/planner.h", "#pragma once\n" + asked,
                     "stop_token.h")
        self.accepts("kernels/base/stop_token.h", "#pragma once\n" + asked)
        self.accepts("kernels/graph/planner.cc", "StopSource stop;\n")

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
            "server/rpc/a.h", "client/cli/a.h", "kernels/graph/passes/a.h",
            "kernels/graph/a.h", "server/CMakeLists.txt",
            "tests/base/a_test.cc", "tests/rpc/a_test.cc",
            "tests/client/cli/a_test.cc", "tests/graph/passes_test.cc",
            "tests/fuzz/seeds/x"), [])
        [finding] = self.mirrored("tests/oddities/a_test.cc")
        self.assertIn("tests/oddities: mirrors no folder", finding)

    def test_folders_below_the_first_are_mirrored_both_ways(self):
        self.write("ARCHITECTURE.md", self.TOPICS)
        self.assertEqual(self.mirrored(
            "tests/fuzz/x", "tests/lint/x", "kernels/device/a.h",
            "tests/device/a_test.cc"), [])
        [finding] = self.mirrored("kernels/device/cpu/a.h")
        self.assertIn("kernels/device/cpu: there is no tests/device/cpu",
                      finding)
        self.assertEqual(self.mirrored("tests/device/cpu/a_test.cc"), [])
        [finding] = self.mirrored("tests/device/gpu/a_test.cc")
        self.assertIn("tests/device/gpu: mirrors no folder", finding)

    def test_an_exemption_must_exempt_something(self):
        self.write("ARCHITECTURE.md", self.TOPICS)
        [finding] = self.mirrored("tests/fuzz/x")
        self.assertIn("there is no tests/lint", finding)
        for allowed, text in (
                (check_tree.GRPC_ALLOWED, "#include <grpcpp/grpcpp.h>\n"),
                (check_tree.KIND_ALLOWED, "DeviceKind::kCpu\n"),
                (check_tree.FLAG_ALLOWED, "// --max-arena-bytes\n")):
            for number, part in enumerate(allowed[1:]):
                end = {"/": f"{number}.cc", ".": "cc"}.get(part[-1], "")
                self.write(part + end, text)
        # The other text is in none of these files.
        unused = check_tree.check_exemptions(self.root)
        self.assertEqual(len(unused), 3, unused)
        for allowed, finding in zip(
                (check_tree.GRPC_ALLOWED, check_tree.KIND_ALLOWED,
                 check_tree.FLAG_ALLOWED), unused):
            self.assertIn(f"{allowed[0]} ", finding)


if __name__ == "__main__":
    unittest.main()
