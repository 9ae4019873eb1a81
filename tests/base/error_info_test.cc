#include "kernels/base/error_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(ErrorInfoTest, NothingIsAttachedToAPlainStatus) {
  const absl::Status status = absl::InternalError("x");
  EXPECT_EQ(Reason(status), "");
  EXPECT_THAT(Metadata(status), IsEmpty());
  EXPECT_EQ(RetryAfter(status), std::nullopt);
  EXPECT_EQ(Field(status), "");
}

TEST(ErrorInfoTest, ReasonAndMetadataComeBack) {
  const absl::Status status = WithReason(
      absl::AbortedError("busy"), "CONTEXT_BUSY",
      {{"owner", "7"}, {"", "empty key"}, {"bytes", std::string("a:\0b", 4)}});
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "busy");
  EXPECT_EQ(Reason(status), "CONTEXT_BUSY");
  EXPECT_THAT(Metadata(status),
              ElementsAre(Pair("owner", "7"), Pair("", "empty key"),
                          Pair("bytes", std::string("a:\0b", 4))));
}

TEST(ErrorInfoTest, RetryAndFieldComeBack) {
  const absl::Status status =
      WithField(WithRetryAfter(absl::ResourceExhaustedError("full"),
                               absl::Milliseconds(250)),
                "inputs[2].shape");
  EXPECT_EQ(RetryAfter(status), absl::Milliseconds(250));
  EXPECT_EQ(Field(status), "inputs[2].shape");
}

TEST(ErrorInfoTest, OkStaysOk) {
  EXPECT_TRUE(WithReason(absl::OkStatus(), "X").ok());
  EXPECT_TRUE(WithRetryAfter(absl::OkStatus(), absl::Seconds(1)).ok());
  EXPECT_TRUE(WithField(absl::OkStatus(), "x").ok());
  EXPECT_TRUE(Annotate(absl::OkStatus(), "x").ok());
}

TEST(ErrorInfoTest, WhatIsInheritedNamesItsOriginOnce) {
  EXPECT_TRUE(Inherited(absl::OkStatus(), "x").ok());
  absl::Status status =
      WithReason(absl::DataLossError("torn"), "TORN", {{"page", "7"}});
  for (int i = 1; i < 1000; ++i) {
    status = Inherited(status, "link " + std::to_string(i) + " failed: ");
  }
  EXPECT_EQ(status.message(), "link 1 failed: torn");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Reason(status), "TORN");
}

TEST(ErrorInfoTest, AFieldOfAnotherRequestIsNotInherited) {
  const absl::Status cause =
      WithField(absl::InvalidArgumentError("too short"), "inputs[2]");
  const absl::Status status = Inherited(cause, "work 7 failed: ");
  EXPECT_EQ(status.message(), "work 7 failed: too short");
  EXPECT_EQ(Field(status), "");
  EXPECT_EQ(Field(cause), "inputs[2]");
}

TEST(ErrorInfoTest, AnnotateKeepsCodeAndDetails) {
  const absl::Status status = Annotate(
      WithField(WithReason(absl::NotFoundError("gone"), "LOST", {{"a", "b"}}),
                "model"),
      "node 'x': ");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "node 'x': gone");
  EXPECT_EQ(Reason(status), "LOST");
  EXPECT_THAT(Metadata(status), ElementsAre(Pair("a", "b")));
  EXPECT_EQ(Field(status), "model");
}

TEST(ErrorInfoTest, TellsTheNodeAtFault) {
  const absl::Status status =
      WithNode(absl::InternalError("broken"), "node \"sum\" (Add)");
  EXPECT_EQ(NodeAtFault(Annotate(status, "so: ")), "node \"sum\" (Add)");
  EXPECT_EQ(status.message(), "broken");
  EXPECT_EQ(NodeAtFault(absl::InternalError("broken")), "");
  EXPECT_TRUE(WithNode(absl::OkStatus(), "n").ok());
}

TEST(ErrorInfoTest, ALaterReasonReplacesTheEarlier) {
  EXPECT_EQ(Reason(WithReason(WithReason(absl::InternalError(""), "A"), "B")),
            "B");
}

// ThreadSanitizer sees that whoever is last ends it after all have read it
// (cmake/tsan_status.cc).
TEST(ErrorInfoTest, ThreadsShareAStatus) {
  constexpr int kRounds = 50, kThreads = 4;
  for (int round = 0; round < kRounds; ++round) {
    absl::Status status = WithReason(
        absl::InternalError("too long to lie in the status itself"), "REASON",
        {{"name", "too long to lie in the piece of memory that holds it"}});
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([copy = status]() mutable {
        EXPECT_EQ(Reason(copy), "REASON");
        EXPECT_EQ(copy.message(), "too long to lie in the status itself");
        copy = absl::OkStatus();
      });
    }
    status = absl::OkStatus();
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace weir
