// A space on a server, for C++ programs: tensors, contexts and timelines that
// stay there are objects here, which give up their numbers with their last
// copy. What is asked for is collected and goes to the server in batches
// (Evaluator.Run), in its order: a chain of evaluations takes one round trip,
// when its end is read.
//
//   auto space = Space::Open(&client);
//   Tensor x = (*space)->Put(FloatSpec({2}), Bytes(values));
//   Tensor y = (*space)->Evaluate({.graph = graph, .inputs = {{"x", x}},
//                                  .outputs = {"y"}})[0];
//   absl::StatusOr<v1::TensorValue> value = (*space)->Read(y);
//
// What cannot fail at once returns no status: its failure is that of whoever
// reads or waits for what it was to make, and Send tells it too. What went with
// a call that failed as a whole may have been done or not: it may be read, and
// if it is not there, that call's failure says why.
//
// Thread-safe: the commands of a thread keep their order, those of several are
// mixed. Calls take turns, but for waits, and for reads once an evaluation has
// waited for a moment: others may send meanwhile, what they wait for among it.
// At most half of the works that the space may have are unfinished ones of
// what was put and evaluated: what is sent beyond waits for them. It does not
// for those that come after a moment, in its context, or in a chain of tensors:
// too many of these fail with RESOURCE_EXHAUSTED. The client outlives the
// space.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"
#include "proto/weir/v1/command.pb.h"
#include "proto/weir/v1/spaces.pb.h"

namespace weir::client {

class SpaceNumber;
class SpaceQueue;

// Something that the space has under a number. Copies stand for the same thing;
// one that nobody has made stands for nothing.
template <typename Kind>
class SpaceHandle {
 public:
  SpaceHandle() = default;
  explicit operator bool() const { return number_ != nullptr; }
  uint64_t number() const;  // 0 if it stands for nothing

 private:
  friend class Space;
  explicit SpaceHandle(std::shared_ptr<SpaceNumber> number)
      : number_(std::move(number)) {}
  std::shared_ptr<SpaceNumber> number_;
};

using Tensor = SpaceHandle<v1::TensorDescription>;
// Works in it run in the order of their commands.
using Context = SpaceHandle<v1::ContextCreated>;
// A number that only grows, from 0 on.
using Timeline = SpaceHandle<v1::TimelineCreated>;

// A moment: reached once the timeline is at `value` or beyond.
struct Moment {
  Timeline timeline;
  uint64_t value = 0;
};

// One evaluation; fields as those of weir.v1.EvaluateRequest.
struct Evaluation {
  v1::Graph graph = {};
  std::vector<std::pair<std::string, Tensor>> inputs = {};
  std::vector<std::string> outputs =
      {};  // to be kept, in this order; at least one
  v1::EvalMode mode = v1::EVAL_MODE_UNSPECIFIED;
  Context context = {};  // none: it comes after what it reads and awaits alone
  std::string device = {};  // empty: where its context or its first input is
  std::vector<Moment> after = {};
  std::vector<Moment> signal = {};
  std::optional<uint64_t> rng_seed = {};
  std::string label = {};
};

class Space {
 public:
  // So many commands, or bytes of them, are collected before they are sent.
  static constexpr int kMaxWaiting = 256;
  static constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

  // Errors as weir.v1.Spaces.Open has them, and those of any call.
  static absl::StatusOr<std::unique_ptr<Space>> Open(
      Client* client, const v1::OpenSpaceRequest& request = {});
  // Closes it on the server, with all that it holds, unless that is done.
  ~Space();
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  // What Open answered: id, quota, lease and the token, which is a secret.
  const v1::OpenSpaceResponse& opened() const { return opened_; }

  // -- What cannot fail at once.

  // `settings` but for the number.
  Context NewContext(const v1::ContextCreate& settings = {});
  Timeline NewTimeline();
  // `elements` are little-endian and row-major, as many as `spec` says.
  Tensor Put(const v1::TensorSpec& spec, std::string elements,
             const Context& context = {});
  // One tensor for each output.
  std::vector<Tensor> Evaluate(const Evaluation& evaluation);
  void Signal(const Moment& moment);

  // -- What sends, and answers.

  // Its elements, in `raw`, once it is there.
  absl::StatusOr<v1::TensorValue> Read(const Tensor& tensor);
  absl::StatusOr<v1::TensorDescription> Describe(const Tensor& tensor);
  // Until all are there, at most as long as `timeout` and kLongestWait
  // (DEADLINE_EXCEEDED).
  static constexpr absl::Duration kLongestWait = absl::Seconds(60);
  absl::Status Wait(absl::Span<const Tensor> tensors,
                    absl::Span<const Moment> moments = {},
                    absl::Duration timeout = absl::InfiniteDuration());
  // Sends what was collected. The first failure that nobody was told since the
  // last Send, of a command that was refused; works that fail later tell
  // whoever reads what they make.
  absl::Status Send();
  // Any commands, behind what was collected: numbers above 2^63 are the
  // caller's own. Their results, in their order.
  absl::StatusOr<std::vector<v1::CommandResult>> Run(
      std::vector<v1::Command> commands);
  // What it holds now.
  absl::StatusOr<v1::Space> Get();
  // Ends it, and all that it holds; what is asked for later fails.
  absl::Status Close();

 private:
  Space(Client* client, v1::OpenSpaceResponse opened);

  // What came of one, behind what was collected; what has failed of `used`
  // comes before its own failure.
  absl::StatusOr<v1::CommandResult> RunOne(
      v1::Command command, std::vector<std::shared_ptr<SpaceNumber>> used,
      absl::Duration patience = {});

  Client* const client_;
  const v1::OpenSpaceResponse opened_;
  // Shared with numbers, which may outlive the space.
  const std::shared_ptr<SpaceQueue> queue_;
};

}  // namespace weir::client
