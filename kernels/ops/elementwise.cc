#include "kernels/ops/elementwise.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/parallel_for.h"

namespace weir {
namespace {

// Dense inputs under broadcasting: the innermost steps are then 0 or 1.
MergedLoop MakeLoop(const Dims& output, const std::vector<Dims>& inputs) {
  std::vector<Dims> strides;
  strides.reserve(inputs.size());
  for (const Dims& dims : inputs) {
    strides.push_back(BroadcastStrides(dims, output));
  }
  MergedLoop loop(inputs.size());
  Dims of_each(inputs.size());
  for (size_t d = 0; d < output.size(); ++d) {
    for (size_t k = 0; k < inputs.size(); ++k) of_each[k] = strides[k][d];
    loop.Append(output[d], of_each);
  }
  loop.AtLeastOne(1);
  return loop;
}

const std::byte* At(const void* base, int64_t elements, size_t size) {
  return static_cast<const std::byte*>(base) +
         elements * static_cast<int64_t>(size);
}

class ElementwisePlan final : public KernelPlan {
 public:
  ElementwisePlan(const ElementwiseCode& code, const PlanArgs& args)
      : code_(code),
        output_size_(SizeOf(args.outputs[0].dtype)),
        elements_(args.outputs[0].elements) {
    std::vector<Dims> dims;
    for (size_t k = 0; k < code_.operands.size(); ++k) {
      const TensorMeta& input = args.inputs[code_.operands[k]];
      const DType type = code_.fold ? code_.types[0] : code_.types[k];
      sizes_.push_back(SizeOf(input.dtype));
      load_.push_back(input.dtype == type ? nullptr
                                          : FindConvertLoop(input.dtype, type));
      direct_ = direct_ && load_.back() == nullptr;
      // A lone element broadcasts whatever its rank.
      dims.push_back(input.elements == 1 ? Dims() : input.dims);
    }
    if (args.outputs[0].dtype != code_.result) {
      store_ = FindConvertLoop(code_.result, args.outputs[0].dtype);
      direct_ = false;
    }
    direct_ = direct_ && !code_.fold;
    loop_ = MakeLoop(args.outputs[0].dims, dims);
  }

  absl::Status Run(const RunArgs& args) const override {
    std::atomic<FaultCode> fault{FaultCode::kNone};
    ParallelRange(args.team, elements_, Grain(),
                  [&](int64_t begin, int64_t end) {
                    const FaultCode code = RunRange(args, begin, end);
                    if (code != FaultCode::kNone) fault = code;
                  });
    return fault.load() == FaultCode::kNone ? absl::OkStatus()
                                            : FaultStatus(fault.load());
  }

 private:
  static constexpr int64_t kBlock = 512;
  using Block = std::array<uint64_t, kBlock>;  // any compute type

  // A fold passes over its piece once for each of its operands; what a piece
  // begins with is to be worth it, too.
  int64_t Grain() const {
    const auto passes = static_cast<int64_t>(code_.operands.size()) - 1;
    return code_.fold && passes > 1
               ? std::max(code_.grain / passes, std::min(kBlock, code_.grain))
               : code_.grain;
  }

  FaultCode RunRange(const RunArgs& args, int64_t begin, int64_t end) const {
    const size_t operands = code_.operands.size();
    const Dims& dims = loop_.dims;
    const int64_t row_length = loop_.dims.back();
    const size_t outer = dims.size() - 1;
    FaultCode fault = FaultCode::kNone;
    absl::InlinedVector<const void*, 4> in(operands);
    absl::InlinedVector<int64_t, 4> step(operands);
    for (size_t k = 0; k < operands; ++k) {
      step[k] = loop_.strides[k][outer];
    }
    // The position of the row in the outer dimensions.
    Dims index(outer);
    int64_t column = begin % row_length;
    for (int64_t rest = begin / row_length, d = static_cast<int64_t>(outer) - 1;
         d >= 0; --d) {
      const size_t i = static_cast<size_t>(d);
      index[i] = rest % dims[i];
      rest /= dims[i];
    }
    GiveUpQuestion question(args.team);
    while (begin < end) {
      if (question.Asked(static_cast<int64_t>(operands))) break;
      const int64_t n = std::min(row_length - column, end - begin);
      for (size_t k = 0; k < operands; ++k) {
        int64_t offset = column * step[k];
        for (size_t d = 0; d < outer; ++d) {
          offset += index[d] * loop_.strides[k][d];
        }
        in[k] = At(args.inputs[code_.operands[k]], offset, sizes_[k]);
      }
      std::byte* out = static_cast<std::byte*>(args.outputs[0]) +
                       begin * static_cast<int64_t>(output_size_);
      const FaultCode code =
          direct_ ? code_.loop(in.data(), step.data(), out, n)
                  : RunBlocks(in.data(), step.data(), out, n, question);
      if (code != FaultCode::kNone) fault = code;
      begin += n;
      column = 0;
      for (size_t d = outer; d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
    }
    return fault;
  }

  // With conversions on the way in or out.
  FaultCode RunBlocks(const void* const* in, const int64_t* step,
                      std::byte* out, int64_t n,
                      GiveUpQuestion& question) const {
    FaultCode fault = FaultCode::kNone;
    std::array<Block, kMaxOperands> blocks;
    for (int64_t done = 0; done < n; done += kBlock) {
      const int64_t size = std::min(kBlock, n - done);
      std::byte* target = out + done * static_cast<int64_t>(output_size_);
      const FaultCode code =
          code_.fold ? FoldBlock(in, step, done, size, blocks, target, question)
                     : MapBlock(in, step, done, size, blocks, target);
      if (code != FaultCode::kNone) fault = code;
    }
    return fault;
  }

  // Operand k from element `first` on, in its compute type.
  const void* Load(size_t k, const void* const* in, const int64_t* step,
                   int64_t first, int64_t size, Block& block) const {
    const void* source = At(in[k], first * step[k], sizes_[k]);
    if (load_[k] == nullptr) return source;
    load_[k](source, block.data(), step[k] == 0 ? 1 : size);
    return block.data();
  }

  FaultCode MapBlock(const void* const* in, const int64_t* step, int64_t first,
                     int64_t size, std::array<Block, kMaxOperands>& blocks,
                     std::byte* target) const {
    std::array<const void*, kMaxOperands> loaded = {};
    for (size_t k = 0; k < code_.operands.size(); ++k) {
      loaded[k] = Load(k, in, step, first, size, blocks[k]);
    }
    Block result;
    void* out = store_ == nullptr ? static_cast<void*>(target) : result.data();
    const FaultCode fault = code_.loop(loaded.data(), step, out, size);
    if (store_ != nullptr) store_(result.data(), target, size);
    return fault;
  }

  FaultCode FoldBlock(const void* const* in, const int64_t* step, int64_t first,
                      int64_t size, std::array<Block, kMaxOperands>& blocks,
                      std::byte* target, GiveUpQuestion& question) const {
    FaultCode fault = FaultCode::kNone;
    const void* left = Load(0, in, step, first, size, blocks[0]);
    int64_t left_step = step[0];
    const size_t count = code_.operands.size();
    Block results[2];
    for (size_t k = 1; k < count; ++k) {
      if (question.Asked(size)) return fault;
      const void* right = Load(k, in, step, first, size, blocks[1]);
      const void* pair[] = {left, right};
      const int64_t steps[] = {left_step, step[k]};
      const bool last = k + 1 == count && store_ == nullptr;
      void* out = last ? static_cast<void*>(target) : results[k % 2].data();
      const FaultCode code = code_.loop(pair, steps, out, size);
      if (code != FaultCode::kNone) fault = code;
      left = out;
      left_step = 1;
    }
    if (store_ != nullptr) {
      store_(left, target, size);
    }
    return fault;
  }

  const ElementwiseCode& code_;  // the kernel's
  const size_t output_size_;
  const int64_t elements_;
  bool direct_ = true;  // no conversion, no folding
  std::vector<size_t> sizes_;
  std::vector<ConvertLoop> load_;
  ConvertLoop store_ = nullptr;
  MergedLoop loop_{0};
};

class ElementwiseKernel final : public Kernel {
 public:
  explicit ElementwiseKernel(ElementwiseCode code) : code_(std::move(code)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const ElementwisePlan>(code_, args);
  }

 private:
  const ElementwiseCode code_;
};

WEIR_UNARY(SameCode, x0)

}  // namespace

ElementwiseCode SameElements(DType type) {
  ElementwiseCode code;
  DispatchSize(SizeOf(type), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    code.loop = UnaryLoop<SameCode, T, T>;
  });
  code.operands = {0};
  code.types = {type};
  code.result = type;
  return code;
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeElementwiseKernel(
    ElementwiseCode code) {
  if (code.loop == nullptr) {
    return absl::UnimplementedError("no CPU code for this element type");
  }
  return std::make_unique<const ElementwiseKernel>(std::move(code));
}

}  // namespace weir
