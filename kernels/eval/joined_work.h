// Deferred works of one context that run as one graph. The joined graph has a
// work of its own: one item of the queue, with one lane. Its members keep their
// places in the context's order, and are done when it is, each with its results
// and report. If it fails the context runs them one by one instead, so that an
// error belongs to one work and to those that depend on it.
//
// Part of EvalContext; no thread rules of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/eval/work.h"
#include "kernels/graph/join.h"
#include "kernels/graph/program_cache.h"

namespace weir {

class JoinedWork {
 public:
  using Members = std::vector<std::shared_ptr<Work>>;

  // How many works from the front can run as one graph of `context`: those that
  // brought their graphs for its device, draw no random numbers, have small
  // constants, would not be refused alone and wait for nothing on the host but
  // each other. At least 1. The earliest deadline is that of the joined work,
  // and so is the fewest CPU threads; when it passes, the others run one by
  // one.
  static size_t CountJoinable(absl::Span<const std::shared_ptr<Work>> works,
                              const EvalContext& context);

  // REQUIRES: CountJoinable(members) == members.size() > 1. Results that nobody
  // but another member can read stay inside the joined graph.
  explicit JoinedWork(Members members);

  // The work of the joined graph; its request lacks the program.
  Work& work() { return work_; }
  const Members& members() const { return members_; }

  // Whether anybody reads what it makes: else there is no graph to run.
  bool makes_results() const { return !interface_.outputs.empty(); }

  // Names the joined graph in the program cache.
  std::string ProgramKey() const;
  // Makes it; independent of this object.
  ProgramCache::GraphFactory Factory() const;

  bool AnyCancelled() const;
  bool AllWanted() const;  // none is cancelled or late

  // `plan` is the joined work's: tells the members' observers what is kept for
  // each (WorkObserver::OnJoined), up to the first that refuses.
  absl::Status TellKept(const Plan& plan);

  // Gives the members their report and, if it succeeded, what the joined work
  // kept for them.
  void HandOut(bool succeeded);
  // The last thing that is asked of it.
  Members TakeMembers() { return std::move(members_); }

 private:
  // Whether the work waits for something outside `before`.
  static bool Waits(const Work& work,
                    absl::Span<const std::shared_ptr<Work>> before,
                    const EvalContext& context);

  std::vector<JoinPart> parts_;
  JoinedInterface interface_;
  Members members_;
  const std::string owner_;  // the first one's
  Work work_;
};

}  // namespace weir
