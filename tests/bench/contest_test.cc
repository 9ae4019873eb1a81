// A benchmark must not pass when what must hold does not.
#include "tests/bench/contest.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device/cpu/host_limits.h"
#include "proto/inference/grpc_service.pb.h"
#include "tests/bench/raw_echo_server.h"

namespace weir::bench {
namespace {

std::vector<Figures> Rates(const std::vector<double>& rates) {
  std::vector<Figures> rounds;
  for (const double rate : rates) rounds.push_back({.per_second = rate});
  return rounds;
}

std::vector<Figures> P50s(const std::vector<double>& p50s) {
  std::vector<Figures> rounds;
  for (const double p50 : p50s) rounds.push_back({.p50_us = p50});
  return rounds;
}

TEST(ContestBounds, ARatioIsTheMedianOfThoseOfTheRounds) {
  const MustHold bound = {.name = "weir", .least_ratio = 1.1};
  const auto rival = Rates({100, 200, 100});
  EXPECT_TRUE(Holds(bound, rival, Rates({110, 220, 110})));
  EXPECT_FALSE(Holds(bound, rival, Rates({109, 218, 109})));
  // One good round is none, and one bad round is none.
  EXPECT_FALSE(Holds(bound, rival, Rates({1000, 200, 100})));
  EXPECT_TRUE(Holds(bound, rival, Rates({120, 20, 120})));
  // The machine was quick in one round: that is nobody's merit.
  EXPECT_FALSE(Holds(bound, rival, Rates({105, 215, 105})));
  // Of two rounds it is what lies between.
  EXPECT_FALSE(Holds(bound, Rates({100, 100}), Rates({100, 118})));
  EXPECT_TRUE(Holds(bound, Rates({100, 100}), Rates({100, 122})));
}

TEST(ContestBounds, ALatencyIsWhatItIsMoreThanTheRivals) {
  const MustHold bound = {.name = "weir", .most_more_p50_us = 10};
  const auto rival = P50s({50, 80, 50});
  EXPECT_TRUE(Holds(bound, rival, P50s({60, 90, 60})));
  EXPECT_TRUE(Holds(bound, rival, P50s({20, 30, 20})));
  EXPECT_FALSE(Holds(bound, rival, P50s({61, 91, 61})));
  EXPECT_FALSE(Holds(bound, rival, P50s({61, 20, 61})));
}

TEST(ContestBounds, EachPartOfABoundCounts) {
  const MustHold bound = {
      .name = "weir", .least_ratio = 1, .most_more_p50_us = 0};
  const std::vector<Figures> rival = {{.per_second = 10, .p50_us = 10}};
  EXPECT_TRUE(Holds(bound, rival, {{.per_second = 10, .p50_us = 10}}));
  EXPECT_FALSE(Holds(bound, rival, {{.per_second = 9, .p50_us = 10}}));
  EXPECT_FALSE(Holds(bound, rival, {{.per_second = 10, .p50_us = 11}}));
}

TEST(ContestBounds, WhatWasNotMeasuredDoesNotHold) {
  EXPECT_FALSE(Holds({.name = "weir"}, {}, {}));
  EXPECT_FALSE(Holds({.name = "weir"}, Rates({1, 1}), Rates({1})));
}

class Echo final : public Contender {
 public:
  explicit Echo(const char* name) : server_(StartRawEcho(name, 1)) {}
  std::string address() const override { return server_->address(); }
  pid_t pid() const override { return getpid(); }

 private:
  const std::unique_ptr<LocalServer> server_;
};

Entrant EchoNamed(const char* name) {
  return {name,
          [name]() -> ContenderOr { return std::make_unique<Echo>(name); }};
}

std::string Request() {
  inference::ModelInferRequest request;
  request.set_model_name("model");
  request.add_inputs()->set_name("in");
  request.add_raw_input_contents("tensor");
  return request.SerializeAsString();
}

Contest SmallContest() {
  Contest contest;
  contest.entrants = {EchoNamed(kRawEcho), EchoNamed(kRawAsyncBytes),
                      EchoNamed(kRawCallbackBytes)};
  contest.method = kRawEchoMethod;
  contest.request = Request();
  contest.is_right = [](const std::string&) { return true; };
  contest.callers = 2;
  contest.seconds = 0.05;
  contest.rounds = 1;
  return contest;
}

TEST(Contest, HoldsWhatHoldsAndFailsWhatDoesNot) {
  const Contest contest = SmallContest();
  EXPECT_TRUE(Hold(contest, {}));
  EXPECT_TRUE(Hold(contest, {{.name = kRawAsyncBytes, .least_ratio = 1e-9},
                             {.name = kRawEcho, .least_ratio = 1}}));
  EXPECT_FALSE(Hold(contest, {{.name = kRawEcho, .least_ratio = 1},
                              {.name = kRawAsyncBytes, .least_ratio = 1e9}}));
  EXPECT_FALSE(Hold(contest, {{.name = "nobody", .least_ratio = 1e-9}}));
}

TEST(Contest, AWrongReplyFails) {
  Contest contest = SmallContest();
  contest.is_right = [](const std::string& reply) {
    return reply != Request();  // the second's
  };
  EXPECT_FALSE(Hold(contest, {}));
  contest.entrants.resize(1);
  EXPECT_TRUE(Hold(contest, {}));
}

TEST(Contest, ARunThatSawNoAnswerIsRunForLonger) {
  Contest contest = SmallContest();
  contest.entrants.resize(1);
  for (const double seconds : {1e-6, 0.0}) {
    contest.seconds = seconds;
    EXPECT_TRUE(Hold(contest, {}));
  }
}

TEST(Contest, AServerThatDoesNotStartOrAnswerFails) {
  Contest contest = SmallContest();
  contest.method = "/inference.GRPCInferenceService/Nothing";
  EXPECT_FALSE(Hold(contest, {}));
  contest = SmallContest();
  contest.entrants[1].start = []() -> ContenderOr {
    return absl::UnavailableError("no device");
  };
  EXPECT_FALSE(Hold(contest, {}));
}

TEST(Contest, ServersStartOnOneHalfOfTheCpusAndAllAreGivenBack) {
  const int all = OnlineCpus();
  if (all < 2) GTEST_SKIP() << "one CPU has no halves";
  Contest contest = SmallContest();
  int seen = 0;
  contest.entrants[0].start = [&seen]() -> ContenderOr {
    seen = OnlineCpus();
    return std::make_unique<Echo>(kRawEcho);
  };
  ASSERT_TRUE(Hold(contest, {}));
  EXPECT_LE(seen, (all + 1) / 2);
  EXPECT_EQ(OnlineCpus(), all);
  contest.shared_cpus = true;
  ASSERT_TRUE(Hold(contest, {}));
  EXPECT_EQ(seen, CpuQuota());
}

TEST(RawEcho, TheRivalParsesAndAnswersWithTheTensor) {
  Contest contest = SmallContest();
  contest.entrants.resize(1);
  contest.is_right = [](const std::string& bytes) {
    inference::ModelInferResponse reply;
    return reply.ParseFromString(bytes) && reply.model_name() == "model" &&
           reply.outputs_size() == 1 && reply.raw_output_contents_size() == 1 &&
           reply.raw_output_contents(0) == "tensor";
  };
  EXPECT_TRUE(Hold(contest, {}));
}

}  // namespace
}  // namespace weir::bench
