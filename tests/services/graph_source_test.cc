#include "server/services/graph_source.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/timer_queue.h"
#include "kernels/ops/registry.h"
#include "proto/weir/v1/graph.pb.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir {
namespace {

absl::Status ChargeNothing(void*, size_t bytes) {
  return absl::ResourceExhaustedError(std::to_string(bytes));
}

BytePiece Piece(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A model may be as large as a message; it is named where it lies.
TEST(GraphSourceTest, AModelIsNotCopiedToBeFound) {
  const std::string model(8 << 20, 'm');
  const std::string_view bytes = model;
  const BytePiece slices[] = {Piece(bytes.substr(0, 1000)),
                              Piece(bytes.substr(1000))};
  CallArena arena(&ChargeNothing, nullptr);
  const auto key = ProgramKey::Make(
      WireOnnxModel{ByteView(slices, model.size())}, {}, &arena);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_GE(key->size(), model.size());
  const auto copy = key->Copy();
  EXPECT_EQ(copy->size(), key->size());
  EXPECT_TRUE(copy->ends_with(model));
}

// "declared" has a spec, "a" and "b" have none.
std::string Definition() {
  v1::GraphDefinition definition;
  v1::GraphInput* const declared = definition.add_inputs();
  declared->set_name("declared");
  declared->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  definition.add_inputs()->set_name("b");
  definition.add_inputs()->set_name("a");
  definition.add_nodes()->set_op("Add");
  return definition.SerializeAsString();
}

// Nor of what is compiled.
TEST(GraphSourceTest, CallSitesAreNoPartOfTheName) {
  v1::GraphDefinition definition;
  definition.add_inputs()->set_name("x");
  definition.mutable_inputs(0)->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT);
  definition.add_nodes()->set_op("Neg");
  definition.mutable_nodes(0)->add_inputs("x");
  definition.mutable_nodes(0)->add_outputs("y");
  definition.add_outputs("y");
  std::string names[3];
  for (int i = 0; i < 3; ++i) {
    definition.mutable_nodes(0)->set_call_site(i == 0   ? ""
                                               : i == 1 ? "a.py:1"
                                                        : "another.py:22");
    const std::string bytes = definition.SerializeAsString();
    const BytePiece slices[] = {Piece(bytes)};
    CallArena arena;
    const auto key = ProgramKey::Make(
        WireGraphDefinition{ByteView(slices, bytes.size())}, {}, &arena);
    ASSERT_TRUE(key.ok()) << key.status();
    names[i] = *key->Copy();
    EXPECT_EQ(key->size(), names[i].size());
    const auto graph = ImportKey(names[i]);
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->nodes.at(0).op, "Neg");
  }
  EXPECT_EQ(names[1], names[0]);
  EXPECT_EQ(names[2], names[0]);
}

TEST(GraphSourceTest, KindAndInputsArePartOfTheName) {
  const std::string bytes = Definition();
  const BytePiece piece = Piece(bytes);
  const ByteView view({&piece, 1}, bytes.size());
  CallArena arena;
  WireTensor input;
  input.name = "a";
  const auto name = [&](const WireGraph& graph, int32_t dtype) {
    input.spec.dtype = dtype;
    return *ProgramKey::Make(graph, {&input, 1}, &arena)->Copy();
  };
  const WireGraph onnx = WireOnnxModel{view};
  const WireGraph definition = WireGraphDefinition{view};
  EXPECT_EQ(name(definition, 1), name(definition, 1));
  EXPECT_NE(name(definition, 1), name(definition, 2));
  EXPECT_NE(name(definition, 1), name(onnx, 1));
  // A model declares its inputs itself.
  EXPECT_EQ(name(onnx, 1), name(onnx, 2));
}

class DefinitionKeyTest : public ::testing::Test {
 protected:
  absl::StatusOr<ProgramKey> Make(
      const std::vector<std::pair<const char*, int32_t>>& given) {
    inputs_.clear();
    for (const auto& [name, dtype] : given) {
      inputs_.emplace_back();
      inputs_.back().name = name;
      inputs_.back().spec.dtype = dtype;
    }
    return ProgramKey::Make(
        WireGraphDefinition{ByteView({&piece_, 1}, bytes_.size())}, inputs_,
        &arena_);
  }
  std::string Key(const std::vector<std::pair<const char*, int32_t>>& given) {
    const auto key = Make(given);
    EXPECT_TRUE(key.ok()) << key.status();
    return key.ok() ? *key->Copy() : "";
  }

  std::string bytes_ = Definition();
  BytePiece piece_ = Piece(bytes_);
  std::vector<WireTensor> inputs_;
  CallArena arena_;
};

TEST_F(DefinitionKeyTest, InputsThatTheGraphDeclaresAreNotPartOfTheName) {
  const std::string key = Key({{"a", 1}, {"b", 7}});
  EXPECT_EQ(Key({{"a", 1}, {"b", 7}, {"declared", 1}}), key);
  EXPECT_EQ(Key({{"declared", 2}, {"a", 1}, {"b", 7}}), key);
  EXPECT_NE(Key({{"a", 1}}), key);
  EXPECT_NE(Key({{"a", 7}, {"b", 1}}), key);
}

TEST_F(DefinitionKeyTest, TheOrderOfInputsIsNotPartOfTheName) {
  EXPECT_EQ(Key({{"b", 7}, {"a", 1}}), Key({{"a", 1}, {"b", 7}}));
}

// Whoever binds inputs refuses the second.
TEST_F(DefinitionKeyTest, TheFirstOfANameCounts) {
  EXPECT_EQ(Key({{"a", 1}, {"b", 7}, {"a", 2}}), Key({{"a", 1}, {"b", 7}}));
}

// A name that was misspelt is not told as one that was left out.
TEST_F(DefinitionKeyTest, NamesTheFirstThatTheGraphDoesNotHave) {
  const absl::Status unknown =
      Make({{"a", 1}, {"z", 1}, {"B", 7}, {"z", 1}}).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument) << unknown;
  EXPECT_EQ(unknown.message(),
            "the graph has no input \"z\", but \"declared\", \"b\", \"a\"");
  EXPECT_EQ(Field(unknown), "inputs[1]");
}

// What is wrong with it is said by its import.
TEST_F(DefinitionKeyTest, AMalformedDefinitionIsNotToldAsOneThatLacksInputs) {
  bytes_ += '\x12';
  piece_ = Piece(bytes_);
  const absl::Status status =
      ImportKey(Key({{"z", 1}, {"b", 1}, {"b", 1}, {"a", 1}})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "the graph's definition is malformed");
}

// Protobuf passes over what is no name and no spec.
TEST_F(DefinitionKeyTest, WhatProtobufPassesOverIsNoDeclaration) {
  v1::GraphDefinition definition;
  definition.add_inputs()->set_name("x");
  const std::string input("\x12\x03\x0a\x01x", 5);
  ASSERT_EQ(definition.SerializeAsString(), input);
  for (const std::string_view other : {"\x10\x01", "\x08\x01"}) {
    bytes_ = "\x12\x05\x0a\x01x" + std::string(other);
    piece_ = Piece(bytes_);
    const absl::StatusOr<Graph> graph = ImportKey(Key({{"x", 1}}));
    ASSERT_TRUE(graph.ok()) << graph.status();
    EXPECT_EQ(graph->inputs[0].dtype, DType::kFloat);
  }
}

// Names are copied: where there is no room for them, nothing is.
TEST(GraphSourceTest, WhatTheArenaRefusesIsNoKey) {
  v1::GraphDefinition definition;
  std::vector<WireTensor> inputs(64);
  for (size_t i = 0; i < inputs.size(); ++i) {
    definition.add_inputs()->set_name(std::string(1000, 'n') +
                                      std::to_string(i));
    inputs[i].name = definition.inputs().rbegin()->name();
  }
  const std::string bytes = definition.SerializeAsString();
  const BytePiece piece = Piece(bytes);
  const WireGraph graph =
      WireGraphDefinition{ByteView({&piece, 1}, bytes.size())};
  CallArena free;
  EXPECT_TRUE(ProgramKey::Make(graph, inputs, &free).ok());
  CallArena arena(&ChargeNothing, nullptr);
  const auto key = ProgramKey::Make(graph, inputs, &arena);
  EXPECT_EQ(key.status().code(), absl::StatusCode::kResourceExhausted);
}

class FakeCall final : public ServerCall {
 public:
  void Resume(ResumeFn fn, void* arg) override {
    fn_ = fn;
    arg_ = arg;
    resumed_.Set();
  }
  // What its I/O thread would do.
  void RunResumed() {
    resumed_.Wait(++runs_);
    fn_(*this, arg_);
  }
  size_t resumed() const { return resumed_.count(); }
  void Cancel() { SetCancelled(); }
  std::string Connection() const override { return ""; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer) override {}
  void Fail(const absl::Status&) override {}
  void Write(ReplyBuffer, ResumeFn, void*) override {}

 private:
  Event resumed_;
  size_t runs_ = 0;
  ResumeFn fn_ = nullptr;
  void* arg_ = nullptr;
};

class ProgramSearchTest : public ::testing::Test {
 protected:
  // Until it has an answer, or waits for others.
  template <typename Message = WireOnnxModel>
  void Search(const std::string& model) {
    piece_ = Piece(model);
    graph_ = Message{ByteView({&piece_, 1}, model.size())};
    found_.reset();
    search_.emplace(&call_, &programs_, &threads_);
    search_->Run(
        graph_, {},
        [](ProgramSearch::Found found, void* self) {
          static_cast<ProgramSearchTest*>(self)->found_ = std::move(found);
        },
        this);
  }
  // Under the key that was found missing.
  std::shared_ptr<const Program> Compile() {
    Event done;
    std::shared_ptr<const Program> program;
    programs_.GetOrCompile(
        found_->key, found_->hash,
        []() -> absl::StatusOr<Graph> {
          Graph graph;
          graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim(1)}}};
          graph.outputs = {"x"};
          return graph;
        },
        kNoDeadline,
        [&](ProgramCache::ProgramOr made) {
          EXPECT_TRUE(made.ok()) << made.status();
          if (made.ok()) program = *std::move(made);
          done.Set();
        });
    done.Wait();
    return program;
  }

  std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  std::unique_ptr<Device> device_ = MakeCpuDevice({});
  TimerQueue timers_;
  ProgramCache programs_{device_.get(), registry_.get(), &timers_};
  FakeCall call_;
  BytePiece piece_;
  WireGraph graph_;
  std::optional<ProgramSearch> search_;
  FairThreads threads_{2};
  std::optional<ProgramSearch::Found> found_;
};

TEST_F(ProgramSearchTest, SmallKeysAreLookedUpAtOnce) {
  const std::string model(1000, 'm');
  Search(model);
  ASSERT_TRUE(found_.has_value());
  ASSERT_TRUE(found_->status.ok()) << found_->status;
  ASSERT_NE(found_->key, nullptr);
  EXPECT_TRUE(found_->key->ends_with(model));
  const auto program = Compile();
  Search(model);
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->program, program);
  EXPECT_EQ(call_.resumed(), 0u);
}

// It may be all fields of two bytes.
TEST_F(ProgramSearchTest, ADefinitionIsReadOnAnotherThreadSooner) {
  const std::string bytes(kLongStepFieldBytes + 1, '\0');
  Search(bytes);
  EXPECT_TRUE(found_.has_value());
  Search<WireGraphDefinition>(bytes);
  EXPECT_FALSE(found_.has_value());
  call_.RunResumed();
  EXPECT_TRUE(found_.has_value());
}

// The I/O thread reads nothing of it.
TEST_F(ProgramSearchTest, LargeKeysAreReadOnAnotherThread) {
  const std::string model(kLongStepBytes + 1, 'm');
  Search(model);
  EXPECT_FALSE(found_.has_value());
  call_.RunResumed();  // it was looked up
  EXPECT_FALSE(found_.has_value());
  call_.RunResumed();  // it was copied
  ASSERT_TRUE(found_.has_value());
  ASSERT_NE(found_->key, nullptr);
  EXPECT_TRUE(found_->key->ends_with(model));
  const auto program = Compile();
  Search(model);
  EXPECT_FALSE(found_.has_value());
  call_.RunResumed();
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->program, program);
  EXPECT_EQ(found_->key, nullptr);
  EXPECT_EQ(call_.resumed(), 3u);
}

// It would be found.
TEST_F(ProgramSearchTest, NothingIsReadForACallerThatHasGone) {
  const std::string model(kLongStepBytes + 1, 'm');
  Search(model);
  call_.RunResumed();
  call_.RunResumed();
  Compile();
  Event gate;
  for (const char* peer : {"one", "other"}) {
    threads_.Post(peer, [&] { gate.Wait(); });
  }
  Search(model);
  EXPECT_FALSE(found_.has_value());
  call_.Cancel();
  gate.Set();
  ASSERT_TRUE(found_.has_value());
  EXPECT_EQ(found_->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(found_->program, nullptr);
  EXPECT_TRUE(testing::Eventually([&] { return threads_.peers() == 0; }));
}

// Protobuf does not say which.
TEST(GraphSourceTest, ANameThatIsNotUtf8IsNamed) {
  const std::string definition("\x12\x04\x0a\x02\xff\xfe", 6);
  const BytePiece piece = Piece(definition);
  CallArena arena;
  const auto key = ProgramKey::Make(
      WireGraphDefinition{ByteView({&piece, 1}, definition.size())}, {},
      &arena);
  ASSERT_TRUE(key.ok()) << key.status();
  const absl::Status status = ImportKey(*key->Copy()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Field(status), "graph.definition.inputs[0].name");
  EXPECT_EQ(status.message(),
            "graph.definition.inputs[0].name is not UTF-8: \"\\xff\\xfe\"");
}

}  // namespace
}  // namespace weir
