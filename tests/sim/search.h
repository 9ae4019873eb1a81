// The depth-first search over the orders of a scenario: what explorer.h says of
// it. One run after the other asks it at each place where threads may be
// switched.
//
// An order is looked at only if it differs in what matters. Two deeds of two
// threads that are not about the same thing, or only look at it, may as well
// come the other way round; of two that are, and that nothing else orders, both
// orders are looked at: when the second deed is met, the other thread is wanted
// at the place before the first one, and, since there it would be a preemption,
// also where the first one's thread was switched to last. (Coons, Musuvathi and
// McKinley, "Bounded partial-order reduction", OOPSLA 2013, upon Flanagan and
// Godefroid, POPL 2005.) What is done from a state that was seen is kept with
// it, and looked through when it is met again (Yang, Chen, Gopalakrishnan and
// Kirby, "Efficient stateful dynamic partial order reduction", SPIN 2008). What
// an invariant looks at after every step counts as one thing: every order of
// its changes is seen.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sharing.h"

namespace weir::sim {

// Where a run does not simply go on.
struct Turn {
  uint64_t step = 0;
  uint32_t of_step = 0;
  size_t choice = 0;
};

// Sets of small numbers; each is kept once, by a number of its own.
class NumberSets {
 public:
  using Bits = std::vector<uint64_t>;
  static void Add(Bits& bits, uint32_t number);
  static void AddAll(Bits& bits, const Bits& more);

  NumberSets() : sets_(1) {}
  uint32_t Intern(const Bits& bits);
  const Bits& Get(uint32_t set) const { return sets_[set]; }

 private:
  std::deque<Bits> sets_;  // the first is empty
  absl::flat_hash_map<uint64_t, std::vector<uint32_t>> by_hash_;
};

class Search final : public Chooser {
 public:
  // `sharing` is that of its runs. Not `reduces`: every order that the bound
  // allows is looked at, be it as good as another; states are merged still.
  Search(int bound, const Sharing* sharing, bool reduces);

  void BeginRun();
  // False: there is no other order.
  bool NextRun();

  size_t Choose(const ChoicePoint& point) override;
  void RanBlock(uint64_t block, const Ran& ran) override;
  void Started(int thread, uint64_t id, uint64_t parent) override;
  void Did(const Deed& deed) override;
  void CouldHave(const Deed& deed) override;
  bool repeats() const override { return depth_ < path_.size(); }
  bool PassesOn() override;
  bool over() const override { return over_; }

  std::vector<Turn> turns() const;
  // What a thread does in one run and in another, upon the same causes,
  // differs: something that was not known as shared decides it, or what is no
  // object.
  bool doubts() const { return doubts_; }
  uint64_t states() const { return seen_.size(); }
  uint64_t merged() const { return merged_; }

 private:
  // A place on the way of this run. What its chosen option does is its event.
  struct Node {
    uint64_t step = 0;
    uint32_t of_step = 0;
    uint32_t options = 0;
    uint32_t runnable = 0;  // of them
    uint32_t chosen = 0;
    int left = 0;
    int before = 0;  // the thread that ran
    bool continues = false;
    bool is_value = false;
    bool clock = false;  // the last option is that time goes on
    uint64_t key = 0;
    uint64_t wanted = 0;  // options
    uint64_t done = 0;
    size_t first_option = 0;
    size_t first_entry = 0;  // of its event, in entries_
    size_t first_clock = 0;
    uint32_t threads = 0;    // that there are
    NumberSets::Bits deeds;  // that follow, whatever is chosen
    // Threads that are wanted where the running one was switched to.
    NumberSets::Bits before_it;
    NumberSets::Bits missed;  // deeds that its event has others not do
  };
  struct Option {
    Successor to;
    int thread = 0;  // as ChoicePoint::options have it
  };
  // Of a state: what was left when it was seen, and what follows it.
  struct Seen {
    int8_t left = 0;
    uint32_t deeds = 0;
    uint32_t before_it = 0;
  };
  // What a thread does up to its next place, by its causes.
  struct Block {
    Ran ran;
    uint32_t deeds = 0;
  };
  // A deed as every run knows it.
  struct KnownDeed {
    uint32_t thread = 0;
    uint32_t object = 0;
    Deed::Kind kind = Deed::Kind::kRead;
  };
  // One on the way of this run.
  struct Entry {
    uint32_t event = 0;
    int thread = 0;
    uint32_t at = 0;  // on its own clock
    uint32_t deed = 0;
  };

  size_t Repeat(const ChoicePoint& point);
  int Cost(const Node& node, size_t chosen) const;
  uint64_t KeyOf(uint64_t state, uint64_t running) const;
  const Seen* Find(uint64_t state, uint64_t running, int left) const;
  void Push(const ChoicePoint& point, uint64_t key);
  void Pop();
  // The deeds of the newest event become part of what follows its place.
  void CloseEvent();
  // The next option of the newest place that is wanted and leads to something
  // new; false: there is none.
  bool NextOption();

  uint32_t DeedNumber(const Deed& deed);
  // Whoever did something on the way that `deed`, which is done at the way's
  // end by a thread that knows `clock`, should also come before.
  void MeetEntries(const KnownDeed& deed, const uint32_t* clock);
  void MeetEntries(const NumberSets::Bits& deeds, const Node* from);
  // What was seen of a state that the way's newest event leads to.
  void Meet(const Seen& seen, const NumberSets::Bits& deeds, const Node* from);
  // `thread` by its number.
  void Want(size_t event, uint32_t thread);
  void WantWhereItIsFree(size_t event, uint32_t thread);
  void WantAt(Node& node, uint32_t thread);
  bool IsFree(const Node& node) const;

  const int bound_;
  const Sharing* const sharing_;
  const bool reduces_;
  std::vector<Node> path_;
  std::vector<Option> options_;                   // of the path's nodes
  std::vector<Entry> entries_;                    // of their events
  std::vector<uint32_t> clocks_;                  // of all threads, at each
  std::vector<std::vector<uint32_t>> by_object_;  // of entries_
  size_t depth_ = 0;
  int left_ = 0;
  bool over_ = false;
  bool doubts_ = false;
  uint64_t merged_ = 0;

  absl::flat_hash_map<uint64_t, uint32_t> thread_numbers_;
  std::vector<uint32_t> parents_;  // threads' numbers
  std::vector<int> indices_;       // in this run; -1: not there
  absl::flat_hash_map<uint64_t, uint32_t> object_numbers_;
  absl::flat_hash_map<uint64_t, uint32_t> deed_numbers_;
  std::vector<KnownDeed> deeds_;
  NumberSets sets_;
  absl::flat_hash_map<uint64_t, Seen> seen_;
  absl::flat_hash_map<uint64_t, Block> blocks_;
};

}  // namespace weir::sim
