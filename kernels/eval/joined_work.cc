#include "kernels/eval/joined_work.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"

namespace weir {
namespace {

constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxNodes = 4096;
// A joined program has constants of its own.
constexpr size_t kMaxConstantBytes = size_t{1} << 20;

// Its plan needs bytes that are on the device. It is refused for that alone,
// and so it is beside others, where they might be known.
bool ReadsDeviceOnHost(const WorkRequest& request) {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputSource& input = request.inputs[i];
    if ((input.tensor.valid() || input.producer != nullptr) &&
        request.program->InputOnHost(i)) {
      return true;
    }
  }
  return false;
}

// Whatever else would refuse or end it is an error of it alone.
bool CanJoin(const Work& work, const Device& device) {
  const WorkRequest& request = work.request;
  return request.graph != nullptr && !request.program->random() &&
         &request.program->device() == &device &&
         request.program->constant_bytes() <= kMaxConstantBytes &&
         request.inputs.size() == request.program->inputs().size() &&
         request.outputs.size() == request.program->outputs().size() &&
         !ReadsDeviceOnHost(request);
}

// Nobody waits for the tensor's writer, but perhaps on the device.
bool IsWritten(const Tensor& tensor, const Device& device) {
  const Point writer = tensor.storage().writer();
  return writer.Outcome().has_value() ||
         (device.streams_wait() && !writer.OnDevice(&device).is_null());
}

// A producer that does not keep the output is an error of the reader alone.
bool KeepsWhatIsRead(const Work& reader) {
  return std::all_of(
      reader.request.inputs.begin(), reader.request.inputs.end(),
      [](const InputSource& input) {
        return input.producer == nullptr ||
               (input.producer_output <
                    input.producer->request.outputs.size() &&
                input.producer->request.outputs[input.producer_output] ==
                    OutputWish::kKeep);
      });
}

}  // namespace

// What one waits for all would, and what waits for one of them might be among
// that. A work of the same context is launched, on their lane, before it is
// their turn.
bool JoinedWork::Waits(const Work& work,
                       absl::Span<const std::shared_ptr<Work>> before,
                       const EvalContext& context) {
  if (!work.request.after.empty()) return true;
  const Device& device = context.engine().device();
  return std::any_of(
      work.request.inputs.begin(), work.request.inputs.end(),
      [&](const InputSource& input) {
        if (input.tensor.valid()) return !IsWritten(input.tensor, device);
        const std::shared_ptr<Work>& producer = input.producer;
        if (producer == nullptr || producer->IsOf(context) ||
            std::find(before.begin(), before.end(), producer) != before.end()) {
          return false;
        }
        if (!producer->readable_ && !producer->done()) return true;
        // One that failed is an error of its reader alone.
        const auto& kept = producer->result_.kept;
        return input.producer_output >= kept.size() ||
               !kept[input.producer_output].valid() ||
               !IsWritten(kept[input.producer_output], device);
      });
}

size_t JoinedWork::CountJoinable(absl::Span<const std::shared_ptr<Work>> works,
                                 const EvalContext& context) {
  const Device& device = context.engine().device();
  const Nanos now = NowNanos();
  size_t count = 0, nodes = 0;
  for (const std::shared_ptr<Work>& work : works) {
    if (count == kMaxMembers || !CanJoin(*work, device) ||
        !KeepsWhatIsRead(*work) || !work->Wanted(now).ok() ||
        Waits(*work, works.first(count), context)) {
      break;
    }
    nodes += work->request.graph->nodes.size();
    if (nodes > kMaxNodes) break;
    ++count;
  }
  return std::max<size_t>(count, 1);
}

JoinedWork::JoinedWork(Members members)
    : members_(std::move(members)), owner_(members_.front()->request.owner) {
  absl::flat_hash_map<const Work*, size_t> position;
  std::vector<int> readers(members_.size(), 0);
  for (size_t i = 0; i < members_.size(); ++i) {
    const WorkRequest& request = members_[i]->request;
    JoinPart& part = parts_.emplace_back();
    part.graph = request.graph.get();
    part.outputs = &request.program->outputs();
    for (const InputSource& input : request.inputs) {
      const auto producer = position.find(input.producer.get());
      if (producer == position.end()) {
        part.links.emplace_back(std::nullopt);
        work_.request.inputs.push_back(input);
        continue;
      }
      part.links.emplace_back(
          PartValue{producer->second, input.producer_output});
      ++readers[producer->second];
    }
    position[members_[i].get()] = i;
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    // The members' list and the readers among them hold it; who else?
    const bool held = HeldByOthers(members_[i], 1 + readers[i]);
    for (const OutputWish wish : members_[i]->request.outputs) {
      parts_[i].wanted.push_back(held && wish == OutputWish::kKeep);
    }
  }
  interface_ = JoinInterfaces(parts_);
  work_.request.outputs.assign(interface_.outputs.size(), OutputWish::kKeep);
  for (const std::shared_ptr<Work>& member : members_) {
    work_.request.deadline =
        std::min(work_.request.deadline, member->request.deadline);
    const int threads = member->request.cpu_threads;
    int& most = work_.request.cpu_threads;
    if (most == 0 || (threads > 0 && threads < most)) most = threads;
  }
  work_.request.owner = owner_;
  work_.joined_ = this;
}

std::string JoinedWork::ProgramKey() const {
  std::string key = "joined";
  for (size_t i = 0; i < parts_.size(); ++i) {
    absl::StrAppend(&key, ";", members_[i]->request.program->number());
    for (const std::optional<PartValue>& link : parts_[i].links) {
      absl::StrAppend(&key, ",");
      if (link) absl::StrAppend(&key, link->part, ".", link->index);
    }
    for (const bool wanted : parts_[i].wanted) {
      absl::StrAppend(&key, wanted ? "+" : "-");
    }
  }
  return key;
}

ProgramCache::GraphFactory JoinedWork::Factory() const {
  struct Owned {
    std::shared_ptr<const Graph> graph;
    std::shared_ptr<const Program> program;
  };
  std::vector<Owned> owned;
  for (const std::shared_ptr<Work>& member : members_) {
    owned.push_back({member->request.graph, member->request.program});
  }
  return
      [owned = std::move(owned), parts = parts_] { return JoinGraphs(parts); };
}

bool JoinedWork::AnyCancelled() const {
  return std::any_of(
      members_.begin(), members_.end(),
      [](const std::shared_ptr<Work>& member) { return member->cancelled(); });
}

bool JoinedWork::AllWanted() const {
  const Nanos now = NowNanos();
  return std::all_of(members_.begin(), members_.end(),
                     [now](const std::shared_ptr<Work>& member) {
                       return member->Wanted(now).ok();
                     });
}

absl::Status JoinedWork::TellKept(const Plan& plan) {
  std::vector<std::vector<const TensorMeta*>> kept;
  for (const std::shared_ptr<Work>& member : members_) {
    kept.emplace_back(member->request.outputs.size(), nullptr);
  }
  for (size_t i = 0; i < interface_.outputs.size(); ++i) {
    const PartValue of = interface_.outputs[i];
    kept[of.part][of.index] = &plan.outputs()[i].meta;
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    WEIR_RETURN_IF_ERROR(
        members_[i]->observer_->OnJoined(*members_[i], kept[i]));
  }
  return absl::OkStatus();
}

void JoinedWork::HandOut(bool succeeded) {
  for (const std::shared_ptr<Work>& member : members_) {
    member->NoteJoined(work_.report(), members_.size());
  }
  if (!succeeded) return;
  for (const std::shared_ptr<Work>& member : members_) {
    member->result_.kept.resize(member->request.outputs.size());
  }
  for (size_t i = 0; i < work_.result_.kept.size(); ++i) {
    const PartValue to = interface_.outputs[i];
    members_[to.part]->result_.kept[to.index] =
        std::move(work_.result_.kept[i]);
  }
  for (const std::shared_ptr<Work>& member : members_) {
    member->readable_ = true;
  }
}

}  // namespace weir
