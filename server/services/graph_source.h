// From the graph of a request to its program: the served model, or the key
// under which a program is cached and the import that makes it. Any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/graph/program_cache.h"
#include "server/models/repository.h"
#include "server/rpc/call_arena.h"
#include "server/rpc/wire_evaluate.h"

namespace weir {

// INVALID_ARGUMENT if there is none.
absl::Status CheckGraph(const WireGraph& graph);

// Errors as ModelRepository::Find, with the field.
absl::StatusOr<std::shared_ptr<const ServedModel>> FindServedModel(
    const ModelRepository& models, const WireModelReference& reference);

// What names the program of a definition or an ONNX model: kind, the inputs'
// types and ranks (an input may take its declaration from its value) and the
// graph's bytes, which stay in the message. Lives as long as the call's arena.
class ProgramKey {
 public:
  ProgramKey(const WireGraph& graph, std::span<const WireTensor> inputs,
             CallArena* arena);

  size_t size() const { return size_; }
  ProgramCache::KeyPieces pieces() const {
    return {pieces_.data(), pieces_.size()};
  }
  // A copy that outlives the call.
  std::shared_ptr<const std::string> Copy() const;

 private:
  std::span<std::string_view> pieces_;
  size_t size_ = 0;
};

// `status` of an import or a compilation with the request's field: those of a
// graph's own begin with "graph.definition", and what is wrong with a graph
// without one has the graph's.
absl::Status WithGraphField(const absl::Status& status, const WireGraph& graph);

// Imports what the copied key describes; runs on a compile thread.
absl::StatusOr<Graph> ImportKey(std::string_view key);

}  // namespace weir
