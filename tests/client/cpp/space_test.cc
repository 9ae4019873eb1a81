// A space as a C++ program has it, on a server in this process.
#include "client/cpp/space.h"

#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/status_details.h"
#include "tests/server/server_fixture.h"

namespace weir::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using weir::testing::Bytes;
using weir::testing::TestServer;
using weir::testing::Values;

v1::TensorSpec Floats(int64_t count) {
  v1::TensorSpec spec;
  spec.set_dtype(v1::DATA_TYPE_FLOAT);
  spec.add_shape(count);
  return spec;
}

// y = x OP x.
v1::Graph Twice(const std::string& op) {
  return weir::testing::Program("inputs { name: 'x' } nodes { op: '" + op +
                                "' inputs: 'x' inputs: 'x' outputs: 'y' } "
                                "outputs: 'y'")
      .graph();
}

class SpaceClientTest : public ::testing::Test {
 protected:
  SpaceClientTest() : client_({.address = server_.address()}) {
    auto space = Space::Open(&client_);
    EXPECT_TRUE(space.ok()) << space.status();
    space_ = *std::move(space);
  }

  Tensor Put(const std::vector<float>& values) {
    return space_->Put(Floats(static_cast<int64_t>(values.size())),
                       Bytes(values));
  }
  Tensor Double(const Tensor& x, const Context& context = {}) {
    return space_->Evaluate({.graph = Twice("Add"),
                             .inputs = {{"x", x}},
                             .outputs = {"y"},
                             .context = context})[0];
  }
  std::vector<float> Read(const Tensor& tensor) {
    const auto value = space_->Read(tensor);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? Values<float>(value->raw()) : std::vector<float>();
  }

  // What the space holds once all is sent.
  v1::SpaceAmounts Held() {
    const absl::Status sent = space_->Send();
    EXPECT_TRUE(sent.ok()) << sent;
    const auto space = space_->Get();
    EXPECT_TRUE(space.ok()) << space.status();
    return space.ok() ? space->held() : v1::SpaceAmounts();
  }

  TestServer server_;
  Client client_;
  std::unique_ptr<Space> space_;
};

TEST_F(SpaceClientTest, AChainGoesInOneCall) {
  Tensor y = Put({1, 2, 3});
  for (int i = 0; i < 20; ++i) y = Double(y);
  EXPECT_EQ(Read(y), (std::vector<float>{1048576, 2097152, 3145728}));
  ASSERT_TRUE(server_.Settles());
  EXPECT_EQ(server_.Requests("Run", "OK"), 1);
}

TEST_F(SpaceClientTest, NumbersGoWithTheirLastCopy) {
  Tensor x = Put({1});
  const Tensor y = Double(x);
  const Tensor copy = x;
  x = {};
  EXPECT_EQ(Held().tensors(), 2u);
  {
    const Context context = space_->NewContext();
    const Timeline timeline = space_->NewTimeline();
    const v1::SpaceAmounts held = Held();
    EXPECT_EQ(held.contexts(), 1u);
    EXPECT_EQ(held.timelines(), 1u);
  }
  const v1::SpaceAmounts held = Held();
  EXPECT_EQ(held.contexts(), 0u);
  EXPECT_EQ(held.timelines(), 0u);
  EXPECT_EQ(held.tensors(), 2u);
}

TEST_F(SpaceClientTest, MoreThanOneCallTakesGoesInSeveral) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 2500; ++i) {
    tensors.push_back(Put({static_cast<float>(i)}));
    if (tensors.size() == 500) tensors.clear();
  }
  const Tensor last = Put({7});
  EXPECT_EQ(Read(last), std::vector<float>{7});
  tensors.clear();
  EXPECT_EQ(Held().tensors(), 1u);
}

TEST_F(SpaceClientTest, TimelinesOrderWorks) {
  const Timeline timeline = space_->NewTimeline();
  const Tensor x = Put({2});
  const Tensor y = space_->Evaluate({.graph = Twice("Mul"),
                                     .inputs = {{"x", x}},
                                     .outputs = {"y"},
                                     .after = {{timeline, 1}},
                                     .signal = {{timeline, 2}}})[0];
  EXPECT_EQ(space_->Wait({y}, {}, absl::Milliseconds(1)).code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto known = space_->Describe(y);
  ASSERT_TRUE(known.ok()) << known.status();
  EXPECT_FALSE(known->ready());
  space_->Signal({timeline, 1});
  EXPECT_TRUE(space_->Wait({}, {{timeline, 2}}).ok());
  EXPECT_EQ(Read(y), std::vector<float>{4});
}

TEST_F(SpaceClientTest, WorksOutlastTheHandlesOfTheirTimelines) {
  Timeline gate = space_->NewTimeline();
  Timeline link = space_->NewTimeline();
  const Tensor x = Put({2});
  space_->Evaluate({.graph = Twice("Mul"),
                    .inputs = {{"x", x}},
                    .outputs = {"y"},
                    .after = {{gate, 1}},
                    .signal = {{link, 1}}});
  const Tensor y = space_->Evaluate({.graph = Twice("Mul"),
                                     .inputs = {{"x", x}},
                                     .outputs = {"y"},
                                     .after = {{link, 1}}})[0];
  ASSERT_TRUE(space_->Send().ok());
  link = {};
  EXPECT_EQ(Held().timelines(), 2u) << "works hold it";
  space_->Signal({gate, 1});
  EXPECT_EQ(Read(y), std::vector<float>{4});
  EXPECT_TRUE(testing::Eventually([&] { return Held().timelines() == 1; }));
}

// What was refused is told by whoever reads what came of it, in the words of
// the first that failed, and by Send, once.
TEST_F(SpaceClientTest, WhoeverReadsIsToldOfTheFirstThatFailed) {
  v1::ContextCreate settings;
  settings.set_device("cuda:97");
  const Context context = space_->NewContext(settings);
  const Tensor y = Double(Put({1}), context);
  const Tensor z = Double(y);
  const absl::Status failure = space_->Read(z).status();
  EXPECT_EQ(failure.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(failure.message()), HasSubstr("cuda:97"));
  EXPECT_TRUE(space_->Send().ok());
  // It is known here by now.
  const Tensor later = Double(z);
  EXPECT_EQ(space_->Read(later).status(), failure);

  Double(Put({1}), space_->NewContext(settings));
  EXPECT_EQ(space_->Send(), failure);
  EXPECT_TRUE(space_->Send().ok());
}

TEST_F(SpaceClientTest, FailuresCarryTheirDetails) {
  v1::TensorSpec spec = Floats(3);
  const Tensor broken = space_->Put(spec, "four");
  const absl::Status failure = space_->Read(broken).status();
  EXPECT_EQ(failure.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailsOf(failure).field(), "value") << ErrorText(failure);

  std::vector<v1::Command> commands(1);
  commands[0].mutable_tensor_free()->set_tensor(uint64_t{1} << 63);
  const auto results = space_->Run(std::move(commands));
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(DetailsOf(ToStatus((*results)[0].error())).reason,
            "TENSOR_NOT_FOUND");
}

TEST_F(SpaceClientTest, AClosedSpaceIsSaidToBe) {
  const Tensor x = Put({1});
  ASSERT_TRUE(space_->Close().ok());
  EXPECT_EQ(space_->Read(x).status().code(),
            absl::StatusCode::kFailedPrecondition);
  const Tensor y = Double(x);
  EXPECT_EQ(space_->Read(y).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailsOf(space_->Get().status()).reason, "SPACE_NOT_FOUND");
}

// The space may end before what it has made.
TEST_F(SpaceClientTest, NumbersOutliveTheirSpace) {
  const Tensor x = Put({1});
  space_ = nullptr;
  EXPECT_NE(x.number(), 0u);
}

TEST_F(SpaceClientTest, WhatIsOfAnotherSpaceIsRefused) {
  auto other = Space::Open(&client_);
  ASSERT_TRUE(other.ok()) << other.status();
  const Tensor here = Put({1});
  const Tensor there = (*other)->Put(Floats(1), Bytes(std::vector<float>{2}));
  ASSERT_EQ(here.number(), there.number());
  EXPECT_EQ(space_->Read(there).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(space_->Read(Double(there)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Read(Double(here)), std::vector<float>{2});
}

// A thread that waits does not hold up the one that it waits for.
TEST_F(SpaceClientTest, AThreadWaitsForWhatAnotherSends) {
  const Timeline timeline = space_->NewTimeline();
  const Tensor y = space_->Evaluate({.graph = Twice("Add"),
                                     .inputs = {{"x", Put({3})}},
                                     .outputs = {"y"},
                                     .after = {{timeline, 2}}})[0];
  std::vector<float> read;
  std::thread reader([&] { read = Read(y); });
  absl::Status waited;
  std::thread waiter([&] {
    waited = space_->Wait({}, {{timeline, 1}});
    space_->Signal({timeline, 2});
    EXPECT_TRUE(space_->Send().ok());
  });
  space_->Signal({timeline, 1});
  EXPECT_TRUE(space_->Send().ok());
  waiter.join();
  reader.join();
  EXPECT_TRUE(waited.ok()) << waited;
  EXPECT_EQ(read, std::vector<float>{6});
}

// More works than the space may have wait for one another.
TEST_F(SpaceClientTest, WorksBeyondTheQuotaWaitForOthers) {
  v1::OpenSpaceRequest request;
  request.mutable_quota()->set_works(4);
  auto space = Space::Open(&client_, request);
  ASSERT_TRUE(space.ok()) << space.status();
  const v1::Graph spin =
      weir::testing::SpinRequest(std::chrono::milliseconds(2)).graph();
  Tensor y = (*space)->Put(Floats(4), Bytes(std::vector<float>{1, 2, 3, 4}));
  for (int i = 0; i < 40; ++i) {
    y = (*space)->Evaluate(
        {.graph = spin, .inputs = {{"x", y}}, .outputs = {"y"}})[0];
  }
  const auto value = (*space)->Read(y);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Values<float>(value->raw()), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE((*space)->Send().ok());
}

TEST_F(SpaceClientTest, SoDoesWhatIsPut) {
  v1::OpenSpaceRequest request;
  request.mutable_quota()->set_works(4);
  auto space = Space::Open(&client_, request);
  ASSERT_TRUE(space.ok()) << space.status();
  const Context context = (*space)->NewContext();
  const Tensor x = (*space)->Put(Floats(1), Bytes(std::vector<float>{1}));
  const Tensor y = (*space)->Evaluate(
      {.graph =
           weir::testing::SpinRequest(std::chrono::milliseconds(20)).graph(),
       .inputs = {{"x", x}},
       .outputs = {"y"},
       .context = context})[0];
  std::vector<Tensor> behind;
  for (int i = 0; i < 20; ++i) {
    behind.push_back(
        (*space)->Put(Floats(1), Bytes(std::vector<float>{2}), context));
  }
  const auto value = (*space)->Read(behind.back());
  ASSERT_TRUE(value.ok()) << value.status();
  const absl::Status sent = (*space)->Send();
  EXPECT_TRUE(sent.ok()) << sent;
}

// Who brings the moment may be behind.
TEST_F(SpaceClientTest, NobodyWaitsForWhatComesAfterAMoment) {
  v1::OpenSpaceRequest request;
  request.mutable_quota()->set_works(8);
  auto space = Space::Open(&client_, request);
  ASSERT_TRUE(space.ok()) << space.status();
  const Timeline timeline = (*space)->NewTimeline();
  const Context context = (*space)->NewContext();
  const Tensor x = (*space)->Put(Floats(1), Bytes(std::vector<float>{1}));
  const Tensor y = (*space)->Evaluate({.graph = Twice("Add"),
                                       .inputs = {{"x", x}},
                                       .outputs = {"y"},
                                       .context = context,
                                       .after = {{timeline, 1}}})[0];
  // One by its input, one by its context, and others.
  std::vector<Tensor> behind = (*space)->Evaluate(
      {.graph = Twice("Add"), .inputs = {{"x", y}}, .outputs = {"y"}});
  behind.push_back(
      (*space)->Put(Floats(1), Bytes(std::vector<float>{2}), context));
  for (int i = 0; i < 10; ++i) {
    behind.push_back((*space)->Put(Floats(1), Bytes(std::vector<float>{3})));
  }
  (*space)->Signal({timeline, 1});
  const absl::Status sent = (*space)->Send();
  EXPECT_TRUE(sent.ok()) << sent;
  const auto value = (*space)->Read(behind[0]);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Values<float>(value->raw()), std::vector<float>{4});
}

// What went with a call that nobody answered may be there, and is freed later.
TEST_F(SpaceClientTest, ACallThatFailsLosesNothingThatIsThere) {
  Client hasty({.address = server_.address(), .timeout = absl::Seconds(1)});
  auto space = Space::Open(&hasty);
  ASSERT_TRUE(space.ok()) << space.status();
  const Timeline timeline = (*space)->NewTimeline();
  Tensor x = (*space)->Put(Floats(1), Bytes(std::vector<float>{5}));
  ASSERT_TRUE((*space)->Send().ok());
  v1::Command wait;
  wait.mutable_wait()->add_points()->set_timeline(timeline.number());
  wait.mutable_wait()->mutable_points(0)->set_value(1);
  const Tensor kept = (*space)->Put(Floats(1), Bytes(std::vector<float>{6}));
  x = {};
  EXPECT_EQ((*space)->Run({wait}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto value = (*space)->Read(kept);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(Values<float>(value->raw()), std::vector<float>{6});
  (*space)->Send().IgnoreError();
  const auto held = (*space)->Get();
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_EQ(held->held().tensors(), 1u);
}

TEST(SpaceClientSizes, WhatFitsAloneFits) {
  TestServer server(
      [](ServerOptions& options) { options.max_message_bytes = 2 << 20; });
  Client client({.address = server.address()});
  auto space = Space::Open(&client);
  ASSERT_TRUE(space.ok()) << space.status();
  const auto floats = [](size_t bytes) {
    return std::vector<float>(bytes / sizeof(float), 1);
  };
  std::vector<Tensor> tensors;
  for (const size_t bytes : {size_t{900} << 10, size_t{1900} << 10}) {
    const std::vector<float> values = floats(bytes);
    tensors.push_back((*space)->Put(Floats(static_cast<int64_t>(values.size())),
                                    Bytes(values)));
  }
  EXPECT_TRUE((*space)->Wait(tensors).ok());
}

TEST_F(SpaceClientTest, ThreadsShareASpace) {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  std::vector<float> results(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        Tensor y = Put({static_cast<float>(t)});
        for (int i = 0; i < 10; ++i) y = Double(y);
        const std::vector<float> read = Read(y);
        float& result = results[static_cast<size_t>(t)];
        if (read.size() != 1 || (round > 0 && read[0] != result)) {
          ADD_FAILURE() << "round " << round << " of thread " << t;
        }
        result = read.empty() ? -1 : read[0];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results,
              ElementsAre(0, 1024, 2048, 3072, 4096, 5120, 6144, 7168));
}

}  // namespace
}  // namespace weir::client
