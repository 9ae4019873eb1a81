#include "tests/sim/search.h"

#include <algorithm>

#include "tests/sim/explorer.h"

namespace weir::sim {
namespace {

constexpr size_t kMostOptions = 64;

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::vector<uint32_t> Numbers(const NumberSets::Bits& bits) {
  std::vector<uint32_t> numbers;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t left = bits[word]; left != 0; left &= left - 1) {
      numbers.push_back(static_cast<uint32_t>(
          word * 64 + static_cast<size_t>(__builtin_ctzll(left))));
    }
  }
  return numbers;
}

uint64_t Bit(size_t n) { return uint64_t{1} << n; }

uint32_t NumberOf(absl::flat_hash_map<uint64_t, uint32_t>& numbers,
                  uint64_t name) {
  return numbers.try_emplace(name, static_cast<uint32_t>(numbers.size()))
      .first->second;
}

// Whether it may matter which of two deeds to one object comes first.
bool Conflict(Deed::Kind a, Deed::Kind b) {
  using Kind = Deed::Kind;
  if (a == Kind::kRead && b == Kind::kRead) return false;
  const auto lets_go = [](Kind kind) {
    return kind == Kind::kLetGo || kind == Kind::kLetGoLast;
  };
  return !lets_go(a) || !lets_go(b) || a == Kind::kLetGoLast ||
         b == Kind::kLetGoLast;
}

}  // namespace

// -- Sets ---------------------------------------------------------------------

void NumberSets::Add(Bits& bits, uint32_t number) {
  if (bits.size() <= number / 64) bits.resize(number / 64 + 1);
  bits[number / 64] |= Bit(number % 64);
}

void NumberSets::AddAll(Bits& bits, const Bits& more) {
  if (bits.size() < more.size()) bits.resize(more.size());
  for (size_t i = 0; i < more.size(); ++i) bits[i] |= more[i];
}

uint32_t NumberSets::Intern(const Bits& bits) {
  uint64_t hash = bits.size();
  for (const uint64_t word : bits) hash = Mix(hash, word);
  if (bits.empty()) return 0;
  std::vector<uint32_t>& same = by_hash_[hash];
  for (const uint32_t set : same) {
    if (sets_[set] == bits) return set;
  }
  same.push_back(static_cast<uint32_t>(sets_.size()));
  sets_.push_back(bits);
  return same.back();
}

// -- Runs ---------------------------------------------------------------------

Search::Search(int bound, const Sharing* sharing, bool reduces)
    : bound_(bound), sharing_(sharing), reduces_(reduces) {}

void Search::BeginRun() {
  depth_ = 0;
  left_ = bound_ == kAnyPreemptions ? kMostEarly : bound_;
  over_ = false;
  std::fill(indices_.begin(), indices_.end(), -1);
  Started(Sharing::kClock, 0, 0);
}

bool Search::NextRun() {
  while (!path_.empty()) {
    CloseEvent();
    if (NextOption()) return true;
    Pop();
  }
  return false;
}

std::vector<Turn> Search::turns() const {
  std::vector<Turn> turns;
  for (const Node& node : path_) {
    if (node.chosen != 0) {
      turns.push_back({node.step, node.of_step, node.chosen});
    }
  }
  return turns;
}

// -- Places -------------------------------------------------------------------

int Search::Cost(const Node& node, size_t chosen) const {
  if (chosen == 0 || node.is_value) return 0;
  const bool early = node.clock && chosen + 1 == node.options;
  if (bound_ == kAnyPreemptions) return early ? 1 : 0;
  const bool comes_early = node.runnable > 0 && chosen >= node.runnable;
  return early || node.continues || comes_early ? 1 : 0;
}

// Who runs already matters to what is left of the bound alone.
uint64_t Search::KeyOf(uint64_t state, uint64_t running) const {
  if (bound_ == kAnyPreemptions) return state;
  return state ^ running * 0x9e3779b97f4a7c15;
}

size_t Search::Choose(const ChoicePoint& point) {
  if (repeats()) return Repeat(point);
  if (doubts_) return 0;
  const uint64_t key =
      KeyOf(point.state, point.continues || point.is_value ? point.running : 0);
  const auto left = static_cast<int8_t>(left_);
  const auto [seen, is_new] = seen_.try_emplace(key, Seen{left, 0});
  if (is_new || seen->second.left < left) {
    seen->second.left = left;
    Push(point, key);
    return 0;
  }
  over_ = true;
  ++merged_;
  if (reduces_ && !path_.empty()) {
    Meet(seen->second, sets_.Get(seen->second.deeds), nullptr);
  }
  return 0;
}

bool Search::PassesOn() {
  if (!repeats()) return false;
  const Node& node = path_[depth_];
  // Elsewhere time went on before.
  if (!node.continues || node.chosen != 0 || node.of_step != 0) return false;
  left_ = node.left;
  ++depth_;
  return true;
}

size_t Search::Repeat(const ChoicePoint& point) {
  const Node& node = path_[depth_];
  if (node.options != point.options.size() || node.step != point.step ||
      node.of_step != point.of_step) {
    Fail("the scenario is not deterministic: other choices than before");
  }
  ++depth_;
  left_ = node.left - Cost(node, node.chosen);
  return node.chosen;
}

void Search::Push(const ChoicePoint& point, uint64_t key) {
  const size_t options = point.options.size();
  if (options > kMostOptions) Fail("too many threads to choose from");
  Node node;
  node.step = point.step;
  node.of_step = point.of_step;
  node.options = static_cast<uint32_t>(options);
  node.runnable = static_cast<uint32_t>(point.runnable);
  node.left = left_;
  node.before = point.thread;
  node.continues = point.continues;
  node.is_value = point.is_value;
  node.clock = !point.is_value && point.options.back() == ChoicePoint::kClock;
  node.key = key;
  node.first_option = options_.size();
  node.first_entry = entries_.size();
  for (size_t i = 0; i < options; ++i) {
    options_.push_back({point.successors[i], point.options[i]});
  }
  const uint64_t all = options == 64 ? ~uint64_t{0} : Bit(options) - 1;
  node.wanted = node.is_value || !reduces_ ? all
                : node.clock               ? 1 | Bit(options - 1)
                                           : 1;
  if (reduces_ && options > 1) {
    node.first_clock = clocks_.size();
    node.threads = static_cast<uint32_t>(sharing_->threads());
    for (size_t i = 0; i < node.threads; ++i) {
      const auto& clock = sharing_->clock(static_cast<int>(i)).at;
      clocks_.insert(clocks_.end(), clock.begin(),
                     clock.begin() + static_cast<ptrdiff_t>(node.threads));
    }
  }
  path_.push_back(std::move(node));
  ++depth_;
}

void Search::CloseEvent() {
  Node& node = path_.back();
  NumberSets::AddAll(node.deeds, node.missed);
  node.missed.clear();
  while (entries_.size() > node.first_entry) {
    const Entry& entry = entries_.back();
    NumberSets::Add(node.deeds, entry.deed);
    by_object_[deeds_[entry.deed].object].pop_back();
    entries_.pop_back();
  }
}

bool Search::NextOption() {
  Node& node = path_.back();
  node.done |= Bit(node.chosen);
  // What is met on the way may want more of this place.
  for (uint64_t left_over = node.wanted & ~node.done; left_over != 0;
       left_over = node.wanted & ~node.done) {
    const auto i = static_cast<uint32_t>(__builtin_ctzll(left_over));
    node.done |= Bit(i);
    const int left = node.left - Cost(node, i);
    if (left < 0) continue;
    const Successor& to = options_[node.first_option + i].to;
    const auto block = to.block == 0 ? blocks_.end() : blocks_.find(to.block);
    const Seen* seen = nullptr;
    if (to.block == 0) {
      seen = Find(StateOf(to.causes, to.now), to.running, left);
    } else if (block != blocks_.end()) {
      seen = Find(StateOf(to.causes ^ block->second.ran.added, to.now),
                  to.running, left);
    }
    if (seen == nullptr) {
      node.chosen = i;
      return true;
    }
    ++merged_;
    if (!reduces_) continue;
    NumberSets::Bits deeds = sets_.Get(seen->deeds);
    if (to.block != 0) {
      NumberSets::AddAll(deeds, sets_.Get(block->second.deeds));
    }
    node.chosen = i;
    Meet(*seen, deeds, &node);
  }
  return false;
}

void Search::Pop() {
  Node& node = path_.back();
  if (reduces_) {
    Seen& seen = seen_.find(node.key)->second;
    NumberSets::AddAll(node.deeds, sets_.Get(seen.deeds));
    seen.deeds = sets_.Intern(node.deeds);
    NumberSets::AddAll(node.before_it, sets_.Get(seen.before_it));
    seen.before_it = sets_.Intern(node.before_it);
    if (path_.size() > 1) {
      NumberSets::AddAll(path_[path_.size() - 2].deeds, node.deeds);
    }
    if (node.options > 1) clocks_.resize(node.first_clock);
  }
  options_.resize(node.first_option);
  path_.pop_back();
}

const Search::Seen* Search::Find(uint64_t state, uint64_t running,
                                 int left) const {
  for (const uint64_t key : {KeyOf(state, 0), KeyOf(state, running)}) {
    const auto seen = seen_.find(key);
    if (seen != seen_.end() && seen->second.left >= left) return &seen->second;
  }
  return nullptr;
}

void Search::RanBlock(uint64_t block, const Ran& ran) {
  if (over_ || doubts_ || repeats()) return;
  const auto [known, is_new] = blocks_.try_emplace(block, Block{ran, 0});
  if (!is_new) {
    // What it is may turn out when another thread comes to it.
    doubts_ |= known->second.ran != ran;
    return;
  }
  if (path_.empty()) return;
  NumberSets::Bits deeds = path_.back().missed;
  for (size_t i = path_.back().first_entry; i < entries_.size(); ++i) {
    NumberSets::Add(deeds, entries_[i].deed);
  }
  known->second.deeds = sets_.Intern(deeds);
}

// -- Deeds --------------------------------------------------------------------

void Search::Started(int thread, uint64_t id, uint64_t parent) {
  const uint32_t number = NumberOf(thread_numbers_, id);
  if (number == parents_.size()) {
    parents_.push_back(NumberOf(thread_numbers_, parent));
    indices_.push_back(-1);
  }
  indices_[number] = thread;
}

void Search::Did(const Deed& deed) {
  if (!reduces_ || over_ || doubts_ || repeats() || path_.empty()) return;
  const uint32_t number = DeedNumber(deed);
  const KnownDeed& known = deeds_[number];
  const Clock& clock = sharing_->clock(deed.thread);
  MeetEntries(known, clock.at.data());
  by_object_[known.object].push_back(static_cast<uint32_t>(entries_.size()));
  entries_.push_back({static_cast<uint32_t>(path_.size() - 1), deed.thread,
                      clock.at[static_cast<size_t>(deed.thread)], number});
}

void Search::CouldHave(const Deed& deed) {
  if (!reduces_ || over_ || doubts_ || repeats() || path_.empty()) return;
  const uint32_t number = DeedNumber(deed);
  NumberSets::Add(path_.back().missed, number);
  MeetEntries(deeds_[number], sharing_->clock(deed.thread).at.data());
}

uint32_t Search::DeedNumber(const Deed& deed) {
  const uint64_t name =
      Mix(Mix(deed.id, deed.object), static_cast<uint64_t>(deed.kind));
  const uint32_t number = NumberOf(deed_numbers_, name);
  if (number == deeds_.size()) {
    const uint32_t object = NumberOf(object_numbers_, deed.object);
    if (object == by_object_.size()) by_object_.emplace_back();
    deeds_.push_back({NumberOf(thread_numbers_, deed.id), object, deed.kind});
  }
  return number;
}

void Search::MeetEntries(const KnownDeed& deed, const uint32_t* clock) {
  const int thread = indices_[deed.thread];
  // Of these threads there is no other deed that it may come before.
  uint64_t met = thread < 0 ? 0 : Bit(static_cast<size_t>(thread));
  const std::vector<uint32_t>& entries = by_object_[deed.object];
  for (auto i = entries.rbegin(); i != entries.rend(); ++i) {
    const Entry& entry = entries_[*i];
    const uint64_t bit = Bit(static_cast<size_t>(entry.thread));
    if ((met & bit) != 0 || !Conflict(deeds_[entry.deed].kind, deed.kind)) {
      continue;
    }
    if (clock != nullptr &&
        clock[static_cast<size_t>(entry.thread)] >= entry.at) {
      met |= bit;
      continue;
    }
    Want(entry.event, deed.thread);
    // Once that order is looked at the deeds before are met there; but the
    // bound may not allow it, and allow those.
    if (bound_ == kAnyPreemptions) met |= bit;
  }
}

// `from`: where the way was left, that is its end by now.
void Search::MeetEntries(const NumberSets::Bits& deeds, const Node* from) {
  for (size_t word = 0; word < deeds.size(); ++word) {
    for (uint64_t bits = deeds[word]; bits != 0; bits &= bits - 1) {
      const KnownDeed& deed =
          deeds_[word * 64 + static_cast<size_t>(__builtin_ctzll(bits))];
      if (by_object_[deed.object].empty()) continue;
      // One that is not there yet knows what who starts it knows.
      uint32_t knows = deed.thread;
      while (indices_[knows] < 0 && parents_[knows] != knows) {
        knows = parents_[knows];
      }
      const int index = indices_[knows];
      const uint32_t* clock = nullptr;
      if (index >= 0 && from == nullptr) {
        clock = sharing_->clock(index).at.data();
      } else if (index >= 0 && static_cast<uint32_t>(index) < from->threads) {
        clock = &clocks_[from->first_clock +
                         static_cast<size_t>(index) * from->threads];
      }
      MeetEntries(deed, clock);
    }
  }
}

void Search::Meet(const Seen& seen, const NumberSets::Bits& deeds,
                  const Node* from) {
  MeetEntries(deeds, from);
  for (const uint32_t thread : Numbers(sets_.Get(seen.before_it))) {
    WantWhereItIsFree(path_.size() - 1, thread);
  }
  NumberSets::AddAll(path_.back().deeds, deeds);
}

void Search::Want(size_t event, uint32_t thread) {
  size_t place = event;
  while (path_[place].is_value) {
    if (place == 0) return;
    --place;
  }
  WantAt(path_[place], thread);
  if (bound_ != kAnyPreemptions) WantWhereItIsFree(place, thread);
}

// Where it would not be one preemption more.
void Search::WantWhereItIsFree(size_t event, uint32_t thread) {
  size_t free = event;
  for (; free > 0 && !IsFree(path_[free]); --free) {
    NumberSets::Add(path_[free].before_it, thread);
  }
  if (!path_[free].is_value) WantAt(path_[free], thread);
}

bool Search::IsFree(const Node& node) const {
  if (node.is_value) return false;
  if (!node.continues) return true;
  const int chosen = options_[node.first_option + node.chosen].thread;
  return chosen != ChoicePoint::kClock && chosen != node.before;
}

void Search::WantAt(Node& node, uint32_t thread) {
  const uint32_t threads = node.clock ? node.options - 1 : node.options;
  const int index = indices_[thread];
  // That time goes on is always wanted, where it can.
  if (index == Sharing::kClock && node.clock) return;
  for (uint32_t i = 0; i < threads; ++i) {
    if (options_[node.first_option + i].thread + 1 == index) {
      node.wanted |= Bit(i);
      return;
    }
  }
  node.wanted |= Bit(threads) - 1;
}

}  // namespace weir::sim
