// From the tensors of a request to those of a program: which of its inputs is
// which and whether they fit, and which outputs are wanted. The rules, their
// order and their words are one; how a message says a thing, and where, is its
// service's to tell (RequestTensors).
//
// For one thread at a time, while request, program and arena live. A request
// that shares a work with others has a binding of its own.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/work.h"
#include "kernels/graph/program.h"
#include "server/bytes/call_arena.h"
#include "server/evaluation/input_bytes.h"
#include "server/evaluation/input_places.h"
#include "server/models/repository.h"

namespace weir {

// A request's tensors as its message has them. ReadInput, CheckInputs and
// ReadOutput fail with what they say whole; to others the binding adds field
// and tensor. Each input is asked for in turn: ReadInput, then FillElements.
class RequestTensors {
 public:
  virtual size_t input_count() const = 0;
  virtual GivenShape Input(size_t i) const = 0;
  // Whether kUnknownExtent may stand in its shape: it is kept on the server,
  // and its plan will tell.
  virtual bool IsOpen(size_t) const { return false; }
  // The type of input i, for which the program has `declared`. Checks what else
  // the message says of it beside its shape.
  virtual absl::StatusOr<DType> ReadInput(size_t i, DType declared) = 0;
  // Where the elements are, as source->pieces. `on_host`: the host reads them.
  virtual absl::Status FillElements(size_t i, DType dtype, bool on_host,
                                    InputSource* source) = 0;
  // Fields of errors about the shape of input i, and about its elements.
  virtual std::string ShapeField(size_t i) const = 0;
  virtual std::string ElementsField(size_t i) const = 0;
  // Whether the message has more for inputs than they took, after the last.
  virtual absl::Status CheckInputs() const { return absl::OkStatus(); }

  // 0: it wants all, inline.
  virtual size_t output_count() const = 0;
  virtual std::string_view OutputName(size_t i) const = 0;
  virtual absl::StatusOr<OutputWish> ReadOutput(size_t i) = 0;

 protected:
  ~RequestTensors() = default;
};

class Binding {
 public:
  // The arena outlives it.
  explicit Binding(CallArena* arena) : arena_(arena), places_(arena) {}

  // Fills the work's inputs and outputs, which the arena's payer pays for, and
  // may refuse. Once. With `model`, whose program it is, the shapes are those
  // that it serves; else null.
  absl::Status Bind(const Program& program, const ServedModel* model,
                    RequestTensors& request, WorkRequest* work);

  // The program's outputs that the request asked for, as it did.
  std::span<const size_t> wanted() const { return wanted_; }

  // The error of a work with the request's field where it has the program's.
  absl::Status WithRequestField(const absl::Status& status) const {
    return places_.WithRequestField(status);
  }

 private:
  absl::Status BindInputs(const Program& program, const ServedModel* model,
                          RequestTensors& request, WorkRequest* work);
  absl::Status BindInput(const Program& program, const ServedModel* model,
                         RequestTensors& request, size_t i, size_t index,
                         InputSource* source);
  absl::Status BindOutputs(const Program& program, const ServedModel* model,
                           RequestTensors& request, WorkRequest* work);

  CallArena* const arena_;
  TextElements texts_;
  InputPlaces places_;
  std::span<size_t> wanted_;
};

}  // namespace weir
