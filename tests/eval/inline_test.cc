// Which works the CPU computes in the caller's thread: those whose plan took
// next to no time before. How long a plan takes must go by what it is found by.
#include <memory>
#include <string_view>
#include <utility>

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
  }
};

// A small file may hold the same picture as a large one.
TEST_F(InlineTest, FilesOfOtherSizesAreMeasuredApart) {
  Graph graph;
  graph.opsets = {{"", 17}, {"weir", 1}};
  graph.inputs = {{"file", DType::kString, SymbolicDims{Dim(1)}}};
  GraphNode node;
  node.domain = "weir";
  node.op = "DecodeImage";
  node.inputs = {"file"};
  node.outputs = {"picture"};
  graph.nodes = {std::move(node)};
  graph.outputs = {"picture"};
  const auto program = Compile(std::move(graph));
  const auto context = NewContext();
  Activation activation = Enter(context);
  const auto ran_inline = [&](size_t more) {
    image::Bytes file =
        image::EncodePng(std::vector<uint16_t>{1, 2, 3}, /*height=*/1,
                         /*width=*/1);
    file.resize(file.size() + more);
    const StringRef text = {reinterpret_cast<const char*>(file.data()),
                            file.size()};
    WatchedWork watched;
    watched.request().program = program;
    InputSource& source = watched.request().inputs.emplace_back();
    source.dtype = DType::kString;
    source.dims = {1};
    source.pieces = {
        std::string_view(reinterpret_cast<const char*>(&text), sizeof(text))};
    activation.Submit(watched.work.get(), &watched.waiter);
    EXPECT_TRUE(watched.Returned().ok());
    EXPECT_TRUE(watched.Done().ok());
    return watched.work->report().ran_inline;
  };
  EXPECT_FALSE(ran_inline(0)) << "nothing was measured";
  EXPECT_TRUE(ran_inline(0));
  EXPECT_TRUE(ran_inline(1000));
  constexpr size_t kMuch = size_t{1} << 20;
  EXPECT_FALSE(ran_inline(kMuch));
  EXPECT_TRUE(ran_inline(kMuch + 1000));
  EXPECT_FALSE(ran_inline(4 * kMuch));
}

}  // namespace
}  // namespace weir
