// Which of a program's tensors are a request's, whatever its message is.
#include "server/evaluation/binding.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/bytes/sliced.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

// A message that names its fields as it likes.
class Message final : public RequestTensors {
 public:
  Message& Add(std::string name, std::vector<int64_t> shape, std::string bytes,
               DType dtype = DType::kFloat) {
    inputs_.push_back({std::move(name), std::move(shape),
                       std::make_shared<Sliced>(bytes, 64), dtype});
    return *this;
  }
  Message& Want(std::string name, OutputWish wish = OutputWish::kInline) {
    outputs_.emplace_back(std::move(name), wish);
    return *this;
  }

  size_t input_count() const override { return inputs_.size(); }
  GivenShape Input(size_t i) const override {
    return {inputs_[i].name, inputs_[i].shape};
  }
  absl::StatusOr<DType> ReadInput(size_t i, DType declared) override {
    if (inputs_[i].dtype == declared) return declared;
    return InvalidField("said whole", "another type");
  }
  absl::Status FillElements(size_t i, DType dtype, bool on_host,
                            InputSource* source) override {
    return FillInput(dtype, inputs_[i].shape, inputs_[i].bytes->view(), on_host,
                     arena_.get(), source);
  }
  std::string ShapeField(size_t) const override { return "its shape"; }
  std::string ElementsField(size_t i) const override {
    return "elements of " + std::to_string(i);
  }
  absl::Status CheckInputs() const override { return leftover; }
  size_t output_count() const override { return outputs_.size(); }
  std::string_view OutputName(size_t i) const override {
    return outputs_[i].first;
  }
  absl::StatusOr<OutputWish> ReadOutput(size_t i) override {
    return outputs_[i].second;
  }

  absl::Status leftover;

 private:
  struct Given {
    std::string name;
    std::vector<int64_t> shape;
    std::shared_ptr<const Sliced> bytes;
    DType dtype;
  };

  std::shared_ptr<CallArena> arena_ = std::make_shared<CallArena>();
  std::vector<Given> inputs_;
  std::vector<std::pair<std::string, OutputWish>> outputs_;
};

class BindingTest : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    if (engine_ == nullptr) return;
    Graph graph = MakeGraph("Sub", 2);
    GraphNode more = graph.nodes[0];
    more.name = "more";
    more.outputs = {"other"};
    graph.nodes.push_back(std::move(more));
    graph.outputs = {"out", "other"};
    program_ = Compile(std::move(graph));
  }

  absl::Status Bind(Message& message) {
    binding_ = std::make_unique<Binding>(&arena_);
    work_ = WorkRequest();
    return binding_->Bind(*program_, nullptr, message, &work_);
  }

  void ExpectRefused(Message message, const std::string& field,
                     const std::string& text) {
    const absl::Status status = Bind(message);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Field(status), field);
    EXPECT_EQ(std::string(status.message()), text);
  }

  const std::string float_ = std::string(sizeof(float), '\1');
  std::shared_ptr<const Program> program_;
  CallArena arena_;
  WorkRequest work_;
  std::unique_ptr<Binding> binding_;
};

TEST_P(BindingTest, TensorsAreFoundByName) {
  Message message;
  message.Add("in1", {2}, float_ + float_).Add("in0", {1}, float_);
  message.Want("other").Want("out", OutputWish::kKeep);
  ASSERT_TRUE(Bind(message).ok());
  ASSERT_EQ(work_.inputs.size(), 2u);
  EXPECT_THAT(work_.inputs[0].dims, ElementsAre(1));
  EXPECT_THAT(work_.inputs[1].dims, ElementsAre(2));
  EXPECT_EQ(std::string(work_.inputs[1].pieces[0]), float_ + float_);
  EXPECT_THAT(work_.outputs,
              ElementsAre(OutputWish::kKeep, OutputWish::kInline));
  EXPECT_THAT(binding_->wanted(), ElementsAre(1, 0));
}

TEST_P(BindingTest, WhoAsksForNoOutputGetsAll) {
  Message message;
  message.Add("in0", {1}, float_).Add("in1", {1}, float_);
  ASSERT_TRUE(Bind(message).ok());
  EXPECT_THAT(work_.outputs,
              ElementsAre(OutputWish::kInline, OutputWish::kInline));
  EXPECT_THAT(binding_->wanted(), ElementsAre(0, 1));
}

// Pays for an arena until the charge number `refused`.
struct Payer {
  static absl::Status Charge(void* self, size_t bytes) {
    auto& payer = *static_cast<Payer*>(self);
    if (payer.charges++ >= payer.refused) {
      return absl::ResourceExhaustedError("no room");
    }
    payer.bytes += bytes;
    return absl::OkStatus();
  }

  size_t refused = SIZE_MAX;
  size_t charges = 0;
  size_t bytes = 0;
};

class ManyTensors : public BindingTest {
 protected:
  // More than an arena's smallest block has room to list.
  static constexpr size_t kTensors = 3000;

  // Whoever pays for what `message` makes is heeded each time.
  void ExpectHeeded(Message& message, size_t least) {
    const auto bind = [&](Payer* payer) {
      CallArena arena(&Payer::Charge, payer);
      Binding binding(&arena);
      WorkRequest work;
      return binding.Bind(*program_, nullptr, message, &work);
    };
    Payer all;
    ASSERT_EQ(bind(&all), absl::OkStatus());
    EXPECT_GE(all.bytes, least);
    for (size_t i = 0; i < all.charges; ++i) {
      Payer some{.refused = i};
      EXPECT_EQ(bind(&some).message(), "no room") << i;
    }
  }
};

TEST_P(ManyTensors, AreChargedBeforeInputsAreListed) {
  Attributes attributes;
  attributes.Set("axis", int64_t{0});
  program_ = Compile("Concat", kTensors, std::move(attributes));
  Message message;
  for (size_t i = 0; i < kTensors; ++i) {
    message.Add("in" + std::to_string(i), {0}, "");
  }
  ExpectHeeded(message, kTensors * (sizeof(InputSource) + sizeof(HostTensor)));
}

TEST_P(ManyTensors, AreChargedBeforeOutputsAreListed) {
  Graph graph = MakeGraph("Neg", 1);
  for (size_t i = 1; i < kTensors; ++i) {
    GraphNode node = graph.nodes[0];
    node.name += std::to_string(i);
    node.outputs = {"out" + std::to_string(i)};
    graph.outputs.push_back(node.outputs[0]);
    graph.nodes.push_back(std::move(node));
  }
  program_ = Compile(std::move(graph));
  Message message;
  message.Add("in0", {1}, float_);
  ExpectHeeded(message, kTensors * (sizeof(size_t) + sizeof(OutputWish)));
  for (size_t i = 1; i < kTensors; ++i) {
    message.Want("out" + std::to_string(i));
  }
  // And a table of their names.
  ExpectHeeded(message, kTensors * (sizeof(size_t) + sizeof(OutputWish) +
                                    sizeof(std::string_view)));
}

TEST_P(BindingTest, ErrorsNameTensorAndField) {
  const auto two = [&] {
    return Message().Add("in0", {1}, float_).Add("in1", {1}, float_);
  };
  ExpectRefused(Message().Add("in1", {1}, float_), "inputs",
                "input \"in0\" of the graph is missing");
  ExpectRefused(Message().Add("in1", {1}, float_).Add("x", {1}, float_),
                "inputs[1]",
                "the graph has no input \"x\", but \"in0\", \"in1\"");
  ExpectRefused(Message().Add("in1", {1}, float_).Add("in1", {1}, float_),
                "inputs[1]", "input \"in1\" is given twice");
  ExpectRefused(
      Message().Add("in1", {1}, float_).Add("in0", {1}, float_, DType::kDouble),
      "said whole", "another type");
  ExpectRefused(Message().Add("in1", {1}, float_).Add("in0", {2}, float_),
                "elements of 1",
                "input \"in0\": has 4 bytes; its type and shape need 8");
  ExpectRefused(two().Want("out").Want("y"), "outputs[1]",
                "the graph has no output \"y\", but \"out\", \"other\"");
  ExpectRefused(two().Want("out").Want("out"), "outputs[1]",
                "output \"out\" is asked for twice");
  Message more = two();
  more.leftover = absl::InvalidArgumentError("more than that");
  ExpectRefused(std::move(more), "", "more than that");
}

// What the kernels say of input 0 is the request's second one.
TEST_P(BindingTest, ErrorsOfTheWorkGetTheRequestsField) {
  Message message;
  message.Add("in1", {1}, float_).Add("in0", {1}, float_);
  ASSERT_TRUE(Bind(message).ok());
  EXPECT_EQ(Field(binding_->WithRequestField(
                InvalidField("inputs[0]", "does not fit"))),
            "inputs[1]");
  EXPECT_EQ(
      Field(binding_->WithRequestField(InvalidField("device", "is busy"))),
      "device");
}

INSTANTIATE_TEST_SUITE_P(Devices, BindingTest, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(Devices, ManyTensors, ::testing::Values("cpu"));

}  // namespace
}  // namespace weir
