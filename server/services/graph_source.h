// From the graph of a request to its program: the served model, or the key of a
// cached one and the import that makes it. The classes that hold a call apart,
// any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/graph/call_sites.h"
#include "kernels/graph/program_cache.h"
#include "server/bytes/call_arena.h"
#include "server/models/repository.h"
#include "server/rpc/server_call.h"
#include "server/rpc/wire/wire_graph.h"
#include "server/rpc/wire/wire_tensor.h"
#include "server/services/long_step.h"

namespace weir {

// INVALID_ARGUMENT if there is none.
absl::Status CheckGraph(const WireGraph& graph);

// Errors as ModelRepository::Find, with the field.
absl::StatusOr<std::shared_ptr<const ServedModel>> FindServedModel(
    const ModelRepository& models, const WireModelReference& reference);

// What names the program of a definition or an ONNX model: kind, types and
// ranks of the inputs that the graph leaves to the request to declare, and the
// graph's bytes, which stay in the message, but for those of a definition with
// call sites: what is left of it without them is in the arena. So who asks what
// would run and who runs it, with its inputs in whatever order, have one
// program. Lives as long as the call's arena.
class ProgramKey {
 public:
  ProgramKey() = default;  // of nothing
  // Reads all of a definition. INVALID_ARGUMENT for an input that it does not
  // have; and what the arena refuses: names may be as long as the message.
  static absl::StatusOr<ProgramKey> Make(const WireGraph& graph,
                                         std::span<const WireTensor> inputs,
                                         CallArena* arena);

  size_t size() const { return size_; }
  // The definition has call sites, which are not in the key.
  bool has_call_sites() const { return has_call_sites_; }
  ProgramCache::KeyPieces pieces() const {
    return {pieces_.data(), pieces_.size()};
  }
  // A copy that outlives the call.
  std::shared_ptr<const std::string> Copy() const;

 private:
  std::span<std::string_view> pieces_;
  size_t size_ = 0;
  bool has_call_sites_ = false;
};

// Looks in a cache for the program of a graph, and copies the key of one that
// is not there. Of a key of more than kLongStepBytes, which to make, hash,
// compare and copy takes an I/O thread up to some hundred milliseconds, another
// thread does that. Lives in the arena of its call or beside it.
class ProgramSearch {
 public:
  // One of the three.
  struct Found {
    absl::Status status;  // not OK: why the call fails
    std::shared_ptr<const Program> program;
    std::shared_ptr<const std::string> key;  // to be compiled, with its hash
    ProgramCache::KeyHash hash = 0;
  };
  using Then = void (*)(Found found, void* arg);

  // `beside` is where large keys are read; both outlive the call.
  ProgramSearch(ServerCall* call, ProgramCache* programs, FairThreads* beside)
      : call_(call), programs_(programs), beside_(beside) {}

  // Once. `then` runs once, on the call's I/O thread, inline for a small key;
  // until then nobody else may resume or answer the call, and `graph` and
  // `inputs` stay.
  void Run(const WireGraph& graph, std::span<const WireTensor> inputs,
           Then then, void* arg);

  // For call_sites(), before Run.
  void KeepCallSites() { keeps_call_sites_ = true; }
  // The definition's; null if it has none. Once `then` has run without an
  // error.
  const std::shared_ptr<const CallSites>& call_sites() const {
    return call_sites_;
  }

  // The graph itself, if its key has at most kSmallGraphBytes, else null. Once
  // `then` has run without an error.
  static constexpr size_t kSmallGraphBytes = size_t{64} << 10;
  std::shared_ptr<const Graph> SmallGraph() const;

 private:
  absl::Status Look();
  void Looked(absl::Status status);
  absl::Status Copy();
  void Finish(absl::Status status);

  ServerCall* const call_;
  ProgramCache* const programs_;
  FairThreads* const beside_;
  Then then_ = nullptr;
  void* arg_ = nullptr;
  const WireGraph* graph_ = nullptr;
  std::span<const WireTensor> inputs_;
  bool keeps_call_sites_ = false;
  std::shared_ptr<const CallSites> call_sites_;
  ProgramKey key_;
  Found found_;
};

// The program of a call's graph: one that is cached, or has it compiled in its
// peer's turn, until the call's deadline or its end. Lives in the arena of its
// call or beside it.
class ProgramRequest {
 public:
  struct Result {
    ProgramCache::ProgramOr program;  // errors as the call fails with them
    bool cached = false;
  };
  using Then = void (*)(Result result, void* arg);

  // As ProgramSearch.
  ProgramRequest(ServerCall* call, ProgramCache* programs, FairThreads* beside)
      : call_(call), programs_(programs), search_(call, programs, beside) {}

  // Once. `then` runs once, on the call's I/O thread, possibly inline, and may
  // end this object; until then nobody else may resume or answer the call, and
  // `graph` and `inputs` stay.
  void Run(const WireGraph& graph, std::span<const WireTensor> inputs,
           Then then, void* arg);

  // As ProgramSearch has them.
  void KeepCallSites() { search_.KeepCallSites(); }
  const std::shared_ptr<const CallSites>& call_sites() const {
    return search_.call_sites();
  }
  std::shared_ptr<const Graph> SmallGraph() const {
    return search_.SmallGraph();
  }

 private:
  void Found(ProgramSearch::Found found);
  void Compiled();

  ServerCall* const call_;
  ProgramCache* const programs_;
  ProgramSearch search_;
  const WireGraph* graph_ = nullptr;
  Then then_ = nullptr;
  void* arg_ = nullptr;
  ProgramCache::ProgramOr compiled_ = nullptr;
  ProgramCache::WaitId wait_ = 0;
};

// `status` of an import or a compilation with the request's field: those of a
// graph's own begin with "graph.definition", and what is wrong with a graph
// without one has the graph's.
absl::Status WithGraphField(const absl::Status& status, const WireGraph& graph);

// `status` with the call site of the node at fault, if the definition has one.
absl::Status WithCallSite(const absl::Status& status, const WireGraph& graph,
                          CallArena* arena);

// Imports what the copied key describes; runs on a compile thread.
absl::StatusOr<Graph> ImportKey(std::string_view key);

}  // namespace weir
