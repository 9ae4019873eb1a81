// Every convolution of ResNet-50 v1.5 and MobileNetV2, as model_bench builds
// them, on the CPU: each is joined with what follows it, its weights are packed
// by the plan, and no reference kernel of oneDNN computes it. The other models
// of model_bench have none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/program.h"
#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Node;

struct Layer {
  int64_t in, out, side;
  int64_t kernel = 1, stride = 1, groups = 1;

  std::string Name() const {
    return absl::StrCat(in, " to ", out, " of ", side, ", kernel ", kernel,
                        ", stride ", stride, ", groups ", groups);
  }
};

std::vector<Layer> ResNet50() {
  std::vector<Layer> layers = {
      {.in = 3, .out = 64, .side = 224, .kernel = 7, .stride = 2}};
  int64_t channels = 64, side = 56;
  for (const int64_t width : {64, 128, 256, 512}) {
    const int64_t stride = width == 64 ? 1 : 2;
    layers.push_back({channels, 4 * width, side, 1, stride});
    layers.push_back({channels, width, side});
    layers.push_back({width, width, side, 3, stride});
    side /= stride;
    channels = 4 * width;
    layers.push_back({width, channels, side});
    layers.push_back({channels, width, side});
    layers.push_back({width, width, side, 3});
  }
  return layers;
}

std::vector<Layer> MobileNetV2() {
  struct Stage {
    int64_t expand, out, repeats, stride;
  };
  std::vector<Layer> layers = {
      {.in = 3, .out = 32, .side = 224, .kernel = 3, .stride = 2}};
  int64_t channels = 32, side = 112;
  for (const Stage& stage :
       {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2},
        Stage{6, 64, 4, 2}, Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2},
        Stage{6, 320, 1, 1}}) {
    for (int64_t i = 0; i < stage.repeats; ++i) {
      const int64_t stride = i == 0 ? stage.stride : 1;
      const int64_t hidden = channels * stage.expand;
      if (stage.expand > 1) layers.push_back({channels, hidden, side});
      layers.push_back({hidden, hidden, side, 3, stride, hidden});
      side /= stride;
      layers.push_back({hidden, stage.out, side});
      channels = stage.out;
    }
  }
  layers.push_back({channels, 1280, side});
  return layers;
}

// x -> Conv with bias -> Relu -> y
Graph GraphOf(const Layer& layer) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0), layer.in,
                                          Dim(layer.side), Dim(layer.side)})};
  const Dims weights = {layer.out, layer.in / layer.groups, layer.kernel,
                        layer.kernel};
  graph.constants["w"] = Floats(
      weights, std::vector<float>(
                   static_cast<size_t>(NumElements(weights).value()), 0.5f));
  graph.constants["b"] = Floats(
      {layer.out}, std::vector<float>(static_cast<size_t>(layer.out), 0.25f));
  GraphNode conv = Node("Conv", {"x", "w", "b"}, {"c"});
  const int64_t pad = layer.kernel / 2;
  conv.attributes.Set("group", layer.groups);
  conv.attributes.Set("strides",
                      std::vector<int64_t>{layer.stride, layer.stride});
  conv.attributes.Set("pads", std::vector<int64_t>{pad, pad, pad, pad});
  graph.nodes = {conv, Node("Relu", {"c"}, {"y"})};
  graph.outputs = {"y"};
  return graph;
}

TEST(ModelConvolutionsTest, NoneIsComputedByAReferenceKernel) {
  const auto device = MakeCpuDevice({});
  const auto registry = MakeOpRegistry();
  std::vector<Layer> layers = ResNet50();
  for (const Layer& layer : MobileNetV2()) layers.push_back(layer);
  for (const Layer& layer : layers) {
    for (const int64_t batch : {1, 8}) {
      SCOPED_TRACE(absl::StrCat(layer.Name(), ", batch ", batch));
      const auto program = Program::Compile(GraphOf(layer), *device, *registry);
      ASSERT_TRUE(program.ok()) << program.status();
      HostTensor x;
      x.dtype = DType::kFloat;
      x.dims = {batch, layer.in, layer.side, layer.side};
      const auto plan = (*program)->MakePlan({x});
      ASSERT_TRUE(plan.ok()) << plan.status();
      int convolutions = 0;
      for (size_t i = 0; i < (*plan)->steps(); ++i) {
        const StepOutline step = (*plan)->Step(i);
        if (step.kernel != "cpu/weir.FusedConv") continue;
        ++convolutions;
        EXPECT_FALSE(step.implementation.empty());
        EXPECT_THAT(step.implementation, Not(HasSubstr("ref")));
      }
      EXPECT_EQ(convolutions, 1);
      EXPECT_GT((*program)->packed_constants(), 0u);
    }
  }
}

}  // namespace
}  // namespace weir
