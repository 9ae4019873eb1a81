// What waits, by its owner: next is who has the fewest taken out and not done,
// of those who came, or had their last one done, longest ago; what one owner
// has goes in its order. So however much one has waiting, another waits for one
// of it at most, beside what was taken out before. It may be of several kinds,
// and who takes says of which. Not thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace weir {

template <typename T, size_t kKinds = 1>
class TurnQueue {
 private:
  struct Line;
  using Lines = std::map<std::string, Line>;
  struct Item {
    T value;
    size_t weight;
    uint64_t number;  // in the order of Push
  };
  using Items = std::list<Item>;
  struct Line {
    std::array<Items, kKinds> kinds;
    size_t items = 0;
    size_t weight = 0;
    size_t taken = 0;
    typename std::list<typename Lines::iterator>::iterator turn;  // with items
  };

 public:
  // Of an item that waits.
  struct Place {
    typename Lines::iterator line;
    size_t kind = 0;
    typename Items::iterator item;
  };
  // What waits of one owner.
  struct Share {
    size_t items = 0;
    size_t weight = 0;
  };

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Those of whom something waits or is taken out.
  size_t owners() const { return lines_.size(); }
  Share ShareOf(const std::string& owner) const {
    const auto found = lines_.find(owner);
    if (found == lines_.end()) return {};
    return {found->second.items, found->second.weight};
  }
  const std::string& owner(const Place& place) const {
    return place.line->first;
  }
  // Items of its owner's and its kind before it.
  size_t Rank(const Place& place) const {
    const Items& items = place.line->second.kinds[place.kind];
    return static_cast<size_t>(std::distance(
        items.cbegin(), typename Items::const_iterator(place.item)));
  }

  // Behind what its owner has.
  Place Push(const std::string& owner, T value, size_t weight = 0,
             size_t kind = 0) {
    return Insert(owner, {std::move(value), weight, next_++}, kind, false);
  }
  // Before it, of that kind.
  Place PushFirst(const std::string& owner, T value, size_t weight = 0,
                  size_t kind = 0) {
    return Insert(owner, {std::move(value), weight, 0}, kind, true);
  }

  void SetWeight(const Place& place, size_t weight) {
    place.line->second.weight += weight - place.item->weight;
    place.item->weight = weight;
  }

  // It is of another kind from now on; it keeps its turn.
  void SetKind(Place& place, size_t kind) {
    Line& line = place.line->second;
    Items& from = line.kinds[place.kind];
    Items& to = line.kinds[kind];
    const uint64_t number = place.item->number;
    to.splice(std::find_if(
                  to.begin(), to.end(),
                  [number](const Item& item) { return item.number > number; }),
              from, place.item);
    place.kind = kind;
  }

  T Remove(const Place& place) {
    Line& line = place.line->second;
    T value = std::move(place.item->value);
    line.weight -= place.item->weight;
    line.kinds[place.kind].erase(place.item);
    --line.items;
    --size_;
    if (line.items == 0) {
      turns_.erase(line.turn);
      Forget(place.line);
    }
    return value;
  }

  // What is taken out is its owner's until Done.
  using Owner = typename Lines::iterator;
  using Taken = std::pair<T, Owner>;

  struct Limits {
    size_t kinds = kKinds;    // of the first so many
    size_t taken = SIZE_MAX;  // not of who has so many taken out
  };
  // Nothing, if there is none of these that may(item): which is asked of one
  // item after the other of each owner, and may say no of few.
  template <typename May>
  std::optional<Taken> TakeIf(const Limits& limits, const May& may) {
    std::optional<Place> next;
    for (const Owner owner : turns_) {
      const size_t taken = owner->second.taken;
      if (taken >= limits.taken) continue;
      if (next.has_value() && next->line->second.taken <= taken) continue;
      const std::optional<Place> first = First(owner, limits.kinds, may);
      if (first.has_value()) next = first;
    }
    if (!next.has_value()) return std::nullopt;
    const Owner owner = next->line;
    ++owner->second.taken;
    return Taken{Remove(*next), owner};
  }
  std::optional<Taken> TakeIf(const Limits& limits) {
    return TakeIf(limits, [](const T&) { return true; });
  }
  // REQUIRES: !empty()
  Taken Take() { return *TakeIf({}); }
  void Done(Owner owner) {
    --owner->second.taken;
    if (owner->second.items > 0) {
      turns_.splice(turns_.end(), turns_, owner->second.turn);
    }
    Forget(owner);
  }

 private:
  Place Insert(const std::string& owner, Item item, size_t kind, bool first) {
    const auto line = lines_.try_emplace(owner).first;
    if (line->second.items == 0) {
      line->second.turn = turns_.insert(turns_.end(), line);
    }
    Items& items = line->second.kinds[kind];
    line->second.weight += item.weight;
    ++line->second.items;
    ++size_;
    return {line, kind,
            items.insert(first ? items.begin() : items.end(), std::move(item))};
  }

  template <typename May>
  static std::optional<Place> First(Owner owner, size_t kinds, const May& may) {
    std::optional<Place> first;
    for (size_t kind = 0; kind < kinds; ++kind) {
      Items& items = owner->second.kinds[kind];
      for (auto item = items.begin(); item != items.end(); ++item) {
        if (first.has_value() && first->item->number < item->number) break;
        if (!may(std::as_const(item->value))) continue;
        first = Place{owner, kind, item};
        break;
      }
    }
    return first;
  }

  void Forget(Owner owner) {
    if (owner->second.items == 0 && owner->second.taken == 0) {
      lines_.erase(owner);
    }
  }

  Lines lines_;
  std::list<Owner> turns_;  // of those with items, who is next first
  size_t size_ = 0;
  uint64_t next_ = 1;
};

}  // namespace weir
