// Commands on their way to a space: collected, sent in batches in their order,
// one batch under way at a time, and what came of them written to the numbers
// that they were to make. Part of Space; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "proto/weir/v1/command.pb.h"

namespace weir::client {

class SpaceQueue;

// A number of a space, given up with its last holder.
class SpaceNumber {
 public:
  enum class Kind : uint8_t { kTensor, kContext, kTimeline };

  SpaceNumber(std::shared_ptr<SpaceQueue> queue, Kind kind, uint64_t number);
  ~SpaceNumber();
  SpaceNumber(const SpaceNumber&) = delete;
  SpaceNumber& operator=(const SpaceNumber&) = delete;

  Kind kind() const { return kind_; }
  uint64_t value() const { return value_; }

 private:
  friend class SpaceQueue;

  const std::shared_ptr<SpaceQueue> queue_;
  const Kind kind_;
  const uint64_t value_;
  // Its queue's: why it stands for nothing, else OK; or only may, if the call
  // that was to make it failed as a whole.
  absl::Status failure_;
  bool in_doubt_ = false;
  // What is done in it or with it comes after a moment, which may never be.
  bool awaits_moment_ = false;
};

class SpaceQueue : public std::enable_shared_from_this<SpaceQueue> {
 public:
  using Numbers = std::vector<std::shared_ptr<SpaceNumber>>;
  struct Entry {
    v1::Command command;
    Numbers makes;
    Numbers uses;  // whose failure is its own; they stay until it was sent
    bool awaits_moment = false;  // set by Add
  };

  // `client` is there until Stop. So many works may be unfinished at a time.
  SpaceQueue(Client* client, std::string token, uint64_t max_works)
      : client_(client), token_(std::move(token)), max_works_(max_works) {}

  std::shared_ptr<SpaceNumber> NewNumber(SpaceNumber::Kind kind);

  // Behind all that was added before. Sends, where enough has collected.
  void Add(Entry entry);

  // Sends all that was added, and `commands` behind it, whose results it
  // returns. The call's error if one failed as a whole. `patience`: what those
  // commands may take beside any call's time. With it, and once something was
  // added that waits for a moment, they go in calls of their own, during which
  // others may send: the moment may be up to those.
  absl::StatusOr<std::vector<v1::CommandResult>> Run(
      std::vector<v1::Command> commands,
      absl::Duration patience = absl::ZeroDuration());

  // What came of a command that used `numbers`: `outcome`, unless one of them
  // stands for nothing. Who asks is told.
  absl::Status Judge(const Numbers& numbers, const absl::Status& outcome);
  // The first failure of a command that nobody was told.
  absl::Status TakeUntold();

  // From here on everything fails with `why`, and nothing is sent.
  void Stop(const absl::Status& why);

 private:
  friend class SpaceNumber;

  void GiveUp(const SpaceNumber& number);
  // The next entries of one call; `more`: there are others.
  std::vector<Entry> Take(bool* more);
  // Commands that wait for works, as many as have to end before `entries` may
  // be accepted. Not for those that come after moments: what brings these may
  // be sent behind.
  std::vector<v1::Command> AwaitRoom(const std::vector<Entry>& entries);
  absl::StatusOr<std::vector<v1::CommandResult>> RunApart(
      std::vector<v1::Command> commands, absl::Duration patience);
  // Notes whether it comes after a moment; with mu_ held.
  void NoteMoment(Entry& entry);
  // Why a command that uses them failed with this: one of them may stand for
  // nothing; with mu_ held.
  static absl::Status Cause(const Numbers& numbers, absl::Status failure);
  // Why a command that uses them cannot be sent, else OK; with mu_ held.
  absl::Status Usable(const Numbers& numbers) const;
  absl::Status Send(const v1::RunRequest& request, absl::Duration patience,
                    v1::RunResponse* response);
  // What became of them, from result `first` on; `failed` if their call did.
  void Note(std::vector<Entry>& entries, const absl::Status& failed,
            const v1::RunResponse& response, size_t first);
  void Fail(Entry& entry, const absl::Status& failure,
            bool in_doubt);  // with mu_ held

  Client* const client_;
  const std::string token_;
  const uint64_t max_works_;

  std::mutex turn_;  // of whoever sends; before mu_
  std::mutex mu_;    // of all below, and of the failures of numbers
  std::vector<Entry> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t last_number_ = 0;
  bool awaits_moments_ = false;  // something that was added
  std::deque<uint64_t> works_;   // that were sent, and may not have ended
  absl::Status untold_;
  absl::Status stopped_;
};

}  // namespace weir::client
