// What waits, by its owner: next is who has the fewest taken out and not done,
// of those who came, or had their last one done, longest ago; what one owner
// has goes in its order. So however much one has waiting, another waits for one
// of it at most, beside what was taken out before. Not thread-safe.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <utility>

namespace weir {

template <typename T>
class TurnQueue {
 private:
  struct Line;
  using Lines = std::map<std::string, Line>;
  struct Item {
    T value;
    size_t weight;
  };
  struct Line {
    std::list<Item> items;
    size_t weight = 0;
    size_t taken = 0;
    typename std::list<typename Lines::iterator>::iterator turn;  // with items
  };

 public:
  // Of an item that waits.
  struct Place {
    typename Lines::iterator line;
    typename std::list<Item>::iterator item;
  };
  // What waits of one owner.
  struct Share {
    size_t items = 0;
    size_t weight = 0;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  Share ShareOf(const std::string& owner) const {
    const auto found = lines_.find(owner);
    if (found == lines_.end()) return {};
    return {found->second.items.size(), found->second.weight};
  }
  const std::string& owner(const Place& place) const {
    return place.line->first;
  }
  // Items of its owner's before it.
  size_t Rank(const Place& place) const {
    using Const = typename std::list<Item>::const_iterator;
    return static_cast<size_t>(
        std::distance(place.line->second.items.cbegin(), Const(place.item)));
  }

  Place Push(const std::string& owner, T value, size_t weight) {
    const auto line = lines_.try_emplace(owner).first;
    std::list<Item>& items = line->second.items;
    if (items.empty()) line->second.turn = turns_.insert(turns_.end(), line);
    items.push_back({std::move(value), weight});
    line->second.weight += weight;
    ++size_;
    return {line, std::prev(items.end())};
  }

  T Remove(const Place& place) {
    Line& line = place.line->second;
    T value = std::move(place.item->value);
    line.weight -= place.item->weight;
    line.items.erase(place.item);
    --size_;
    if (line.items.empty()) {
      turns_.erase(line.turn);
      Forget(place.line);
    }
    return value;
  }

  // What Take has taken is its owner's until Done.
  using Owner = typename Lines::iterator;
  // REQUIRES: !empty()
  std::pair<T, Owner> Take() {
    auto next = turns_.begin();
    for (auto turn = next; turn != turns_.end(); ++turn) {
      if ((*turn)->second.taken < (*next)->second.taken) next = turn;
    }
    const Owner owner = *next;
    ++owner->second.taken;
    return {Remove({owner, owner->second.items.begin()}), owner};
  }
  void Done(Owner owner) {
    --owner->second.taken;
    if (!owner->second.items.empty()) {
      turns_.splice(turns_.end(), turns_, owner->second.turn);
    }
    Forget(owner);
  }

 private:
  void Forget(Owner owner) {
    const Line& line = owner->second;
    if (line.items.empty() && line.taken == 0) lines_.erase(owner);
  }

  Lines lines_;
  std::list<Owner> turns_;  // of those with items, who is next first
  size_t size_ = 0;
};

}  // namespace weir
