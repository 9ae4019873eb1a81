// Which works the CPU computes in the caller's thread: those whose plan took
// next to no time before, if that says anything of the next run.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/eval/eval_fixture.h"
#include "tests/ops/image/test_images.h"

namespace weir {
namespace {

class InlineTest : public EvalTest {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry();
    auto device = MakeDevice("cpu", {.cpu_threads = 2}, *registry_);
    ASSERT_TRUE(device.ok()) << device.status();
    EngineOptions options = SmallEngine();
    // Whatever was measured: the test does not depend on how fast it runs.
    options.inline_below = absl::Hours(1);
    auto engine = Engine::Create(*std::move(device), registry_.get(), options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    context_ = NewContext();
  }

  static Graph OneNode(std::string domain, std::string op, DType dtype,
                       const Dims& dims) {
    Graph graph;
    graph.opsets = {{"", 17}, {"weir", 1}};
    SymbolicDims shape;
    for (const int64_t dim : dims) shape.push_back(Dim(dim));
    graph.inputs = {{"x", dtype, std::move(shape)}};
    GraphNode node;
    node.domain = std::move(domain);
    node.op = std::move(op);
    node.inputs = {"x"};
    node.outputs = {"y"};
    graph.nodes = {std::move(node)};
    graph.outputs = {"y"};
    return graph;
  }

  bool RanInline(const std::shared_ptr<const Program>& program,
                 InputSource source) {
    Activation activation = Enter(context_);
    WatchedWork watched;
    watched.request().program = program;
    watched.request().inputs.push_back(std::move(source));
    activation.Submit(watched.work.get(), &watched.waiter);
    EXPECT_TRUE(watched.Returned().ok());
    EXPECT_TRUE(watched.Done().ok());
    return watched.work->report().ran_inline;
  }

  std::shared_ptr<EvalContext> context_;
};

TEST_F(InlineTest, WhatWasShortIsComputedInTheCallersThread) {
  const auto program = Compile(MakeGraph("Neg", 1));
  const std::vector<float> values = {1, 2};
  const auto ran_inline = [&] { return RanInline(program, Floats(values)); };
  EXPECT_FALSE(ran_inline()) << "nothing was measured";
  EXPECT_TRUE(ran_inline());
}

// A file as short as another, of a picture as small, may unpack to much more.
TEST_F(InlineTest, PicturesAreNot) {
  for (const bool text : {true, false}) {
    SCOPED_TRACE(text ? "as text" : "as bytes");
    const image::Bytes file = image::EncodePng(std::vector<uint16_t>{1, 2, 3},
                                               /*height=*/1, /*width=*/1);
    const std::string_view bytes(reinterpret_cast<const char*>(file.data()),
                                 file.size());
    const StringRef element = {bytes.data(), bytes.size()};
    InputSource source;
    source.dtype = text ? DType::kString : DType::kUint8;
    source.dims = {text ? 1 : static_cast<int64_t>(bytes.size())};
    source.pieces = {
        text ? std::string_view(reinterpret_cast<const char*>(&element),
                                sizeof(element))
             : bytes};
    const auto program =
        Compile(OneNode("weir", "DecodeImage", source.dtype, source.dims));
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(RanInline(program, source));
  }
}

// Nor is text, whose elements may have any length.
TEST_F(InlineTest, TextIsNot) {
  const std::string_view text = "text";
  const StringRef element = {text.data(), text.size()};
  InputSource source;
  source.dtype = DType::kString;
  source.dims = {1};
  source.pieces = {std::string_view(reinterpret_cast<const char*>(&element),
                                    sizeof(element))};
  const auto program =
      Compile(OneNode("", "Identity", DType::kString, source.dims));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(RanInline(program, source));
}

// It may have ended before it did what it is there for.
TEST_F(InlineTest, ARunThatFailedSaysNothingOfTheNext) {
  registry_ = MakeOpRegistry({.test_operators = true});
  const auto program = Compile(MakeGraph("Fault", 1, {}, "weir"));
  const std::vector<float> values = {1, 2};
  Activation activation = Enter(context_);
  WatchedWork watched;
  watched.request().program = program;
  watched.request().inputs = {Floats(values)};
  activation.Submit(watched.work.get(), &watched.waiter);
  EXPECT_EQ(Reason(watched.Done()), "INJECTED_FAULT");
  EXPECT_EQ(watched.work->plan()->measured_ns(), 0);
}

}  // namespace
}  // namespace weir
