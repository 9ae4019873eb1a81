#include "kernels/ops/onednn_adapter.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/alignment.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/ops/parallel_for.h"

// From the OpenMP runtime that oneDNN brings. It sets the number of threads of
// the calling thread's own parallel regions; weak, since a oneDNN built without
// OpenMP needs none of this.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));

namespace weir::onednn {
namespace {

using dnnl::memory;

// oneDNN takes the number of threads at creation and at execution, both from
// the calling thread; a worker of ours is one thread.
void UseOneThread() {
  thread_local const bool done = [] {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

// oneDNN's own cache would keep a thousand primitives that nobody holds any
// more, whatever their size: plans share theirs by a LivingTable.
const dnnl::engine& Engine() {
  static const auto* engine = [] {
    dnnl::set_primitive_cache_capacity(0);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

// oneDNN's C++ API throws; nothing above this file does.
template <typename Fn>
absl::Status Guard(const Fn& fn) {
  UseOneThread();
  try {
    fn();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return ShortOfHostMemory(
          absl::ResourceExhaustedError("no memory for a oneDNN primitive"));
    }
    if (error.status == dnnl_unimplemented) {
      return absl::UnimplementedError(absl::StrCat("oneDNN: ", error.what()));
    }
    return absl::InternalError(
        absl::StrCat("oneDNN: ", error.what(), " (status ",
                     static_cast<int>(error.status), ")"));
  } catch (const std::bad_alloc&) {
    return ShortOfHostMemory(
        absl::ResourceExhaustedError("no memory for what oneDNN makes"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

memory At(const memory::desc& desc, void* data) {
  return memory(desc, Engine(), data);
}

// Strict float32, and scratch memory from us.
dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

// What oneDNN makes for one shape: generated code and its tables above all.
struct Prepared {
  dnnl::convolution_forward convolution;
  std::string name;
  memory::desc weights;
  memory::desc scratchpad;
};

using Shape = std::vector<int64_t>;

// Those that live, by shape: equal ones are made once, and live as long as a
// plan holds them. Thread-safe.
template <typename Made>
class LivingTable {
 public:
  static LivingTable& Get() {
    static auto* const table = new LivingTable;
    return *table;
  }

  std::shared_ptr<const Made> Find(const Shape& shape) {
    MutexLock lock(&mu_);
    const auto found = living_.find(shape);
    return found == living_.end() ? nullptr : found->second.lock();
  }

  // Another's, if one was as quick.
  std::shared_ptr<const Made> Share(const Shape& shape, Made made) {
    std::shared_ptr<const Made> ours(new Made(std::move(made)),
                                     [this, shape](const Made* last) {
                                       delete last;
                                       Forget(shape);
                                     });
    MutexLock lock(&mu_);
    std::weak_ptr<const Made>& entry = living_[shape];
    if (auto theirs = entry.lock()) return theirs;
    entry = ours;
    return ours;
  }

 private:
  void Forget(const Shape& shape) {
    MutexLock lock(&mu_);
    const auto found = living_.find(shape);
    if (found != living_.end() && found->second.expired()) living_.erase(found);
  }

  Mutex mu_;
  std::map<Shape, std::weak_ptr<const Made>> living_ WEIR_GUARDED_BY(mu_);
};

// What tells a layout of floats from others.
void AppendLayout(const memory::desc& layout, Shape* shape) {
  const dnnl_memory_desc_t& desc = layout.data;
  const dnnl_blocking_desc_t& blocks = desc.format_desc.blocking;
  shape->insert(shape->end(), {desc.ndims, blocks.inner_nblks});
  for (const dnnl_dim_t* sizes :
       {desc.dims, desc.padded_dims, blocks.strides}) {
    shape->insert(shape->end(), sizes, sizes + desc.ndims);
  }
  for (const dnnl_dim_t* sizes : {blocks.inner_blks, blocks.inner_idxs}) {
    shape->insert(shape->end(), sizes, sizes + blocks.inner_nblks);
  }
}

// A change of layout.
std::shared_ptr<const dnnl::reorder> MakeReorder(const memory::desc& from,
                                                 const memory::desc& to) {
  Shape shape;
  AppendLayout(from, &shape);
  AppendLayout(to, &shape);
  auto& table = LivingTable<dnnl::reorder>::Get();
  if (auto living = table.Find(shape)) return living;
  return table.Share(shape, dnnl::reorder(dnnl::reorder::primitive_desc(
                                Engine(), from, Engine(), to, Attributes())));
}

// Rows, which lie along State::axis, that are computed as one piece.
struct Band {
  int64_t out_begin = 0;
  int64_t out_rows = 0;
  int64_t in_begin = 0;
  int64_t in_rows = 0;  // none: it sees padding alone, and has no primitive
  int64_t pad_begin = 0;
  size_t primitive = 0;  // index in State::primitives
};

struct BandPrimitive {
  std::shared_ptr<const Prepared> prepared;
  size_t kept_bytes = 0;
  size_t form = 0;
  // Where the output is row-major.
  std::shared_ptr<const dnnl::reorder> to_planes;
  memory::desc input;
  memory::desc output;         // channels last
  memory::desc output_planes;  // the band inside the row-major output
};

// oneDNN does not tell what it keeps for a convolution. These are upper
// estimates of what was measured of 60,000 of them with 2.6 for AVX-512, AVX2
// and SSE4.1, code and tables together; most take a half.
constexpr double kKiB = 1024;

// Its newer kernels ("brgconv") have tables for each length that a run of
// columns may have, code for each column that is copied, channels by sixteens,
// and more where windows begin or end in the padding.
struct RowShape {
  double columns = 0;  // of the output
  double copied = 0;   // of the input
  double cut = 0;      // windows that padding makes differ
  double channels = 0;
  double taps = 0;
  bool pads = false;
  bool pads_far = false;  // along the row
};

// Beside more padding than this, or where taps lie wider apart, a run of each
// length may have a kernel of its own.
constexpr int64_t kMostNearPadding = 6;
constexpr int64_t kMostNearDilation = 2;

double RowBytes(const RowShape& row) {
  const double blocks = std::ceil(row.channels / 16);
  if (row.taps == 1 && !row.pads) {
    return kKiB * (160 + blocks + 0.3 * row.columns);
  }
  return kKiB * (160 + blocks + row.copied * (0.1 + 0.042 * blocks) +
                 row.columns * (row.pads_far ? 4.9 : 1.4) + 40 * row.cut +
                 0.05 * row.taps);
}

bool IsBrgconv(const std::string& name) {
  return absl::StartsWith(name, "brgconv");
}

// It has them for AVX-512 alone.
bool MayTakeBrgconv() {
  constexpr auto kNeeded = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  static const bool may = (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) &
                           kNeeded) == kNeeded;
  return may;
}

// With 2.6 these sum up what lies behind the row in place of padding, where 4
// to 6 columns of it are touched by rows of 7, 9 or 11: the next row's pixel,
// or what follows the input in memory. Other lengths and more padding gave
// right answers, and are not trusted either.
constexpr int64_t kTrustedPadding = 3;

// The others write out the taps of a row.
double TapsBytes(double taps) {
  return kKiB * (100 + std::min(16 * taps, 350.0) + 2.8 * taps);
}

// A change of layout: 14 KiB, some of them 18.
constexpr size_t kReorderBytes = 20 << 10;

// A row of more is cut: a primitive takes milliseconds to generate, and its
// parts run side by side.
constexpr double kMostRowBytes = 2 << 20;
constexpr int64_t kColumnsPerBand = 512;
constexpr int64_t kMostBands = int64_t{1} << 16;
// What a convolution may keep in all, some second to generate.
constexpr double kMostKeptBytes = 128 << 20;

// Some rows of a row-major image to channels last.
struct ImageMove {
  memory::desc planes;
  memory::desc channels_last;
  std::shared_ptr<const dnnl::reorder> reorder;
};
constexpr int64_t kMostMoved = int64_t{1} << 22;

// How some primitives want the weights of one slice.
struct Form {
  memory::desc packed;
  std::shared_ptr<const dnnl::reorder> pack;
};

// A piece of some 10 Mflop keeps a core busy for 0.1 ms; its output stays in
// the second-level cache until it is finished. Bands of fewer pixels would
// mostly load weights; slices of fewer channels waste registers.
constexpr double kFlopsPerPiece = 10e6;
constexpr double kOutputBytesPerPiece = 256 << 10;
constexpr int64_t kMaxPieces = 16;
constexpr int64_t kMinPixelsPerBand = 98;
constexpr int64_t kChannelsPerSlice = 64;

// A call of oneDNN asks nobody whether it is still wanted: a larger one is cut
// further, by tenths of a second, though its pieces be less than ideal.
constexpr double kMostProducts = 2.5e9;
// It takes about a nanosecond to prepare for each position under each tap.
constexpr double kMostPositionTaps = 0x1p28;
constexpr int64_t kFewPixels = 32;
constexpr int64_t kFewChannels = 16;
// Near padding each band may be a shape of its own.
constexpr size_t kMostPrimitives = 64;
// What cannot be cut so far is still done by one call, of a second or two.
constexpr double kMostUncutProducts = 0x1p36;
constexpr double kMostUncutPositionTaps = 0x1p31;

double Product(const std::array<int64_t, 3>& sizes) {
  return static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) *
         static_cast<double>(sizes[2]);
}

// What is left to do where oneDNN has summed up. oneDNN's own activations turn
// NaN into a number.
using Activation = ConvolutionSpec::Activation;

template <Activation kActivation>
float Activate(float x, float low, float high) {
  // Each line is one instruction, which gives x where x is NaN.
  if constexpr (kActivation == Activation::kRelu) {
    return 0.0f > x ? 0.0f : x;
  } else if constexpr (kActivation == Activation::kClip) {
    x = low > x ? low : x;
    return high < x ? high : x;
  } else {
    return x;
  }
}

template <Activation kActivation>
void FinishRow(const ConvolutionSpec& spec, const float* from,
               const float* __restrict residual, float* to, int64_t n) {
  const float low = spec.low, high = spec.high;
  // In place and out of it apart: each vectorizes.
  if (from == to) {
    float* __restrict both = to;
    if (residual == nullptr) {
      for (int64_t i = 0; i < n; ++i) {
        both[i] = Activate<kActivation>(both[i], low, high);
      }
    } else {
      for (int64_t i = 0; i < n; ++i) {
        both[i] = Activate<kActivation>(both[i] + residual[i], low, high);
      }
    }
    return;
  }
  const float* __restrict in = from;
  float* __restrict out = to;
  if (residual == nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Activate<kActivation>(in[i], low, high);
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = Activate<kActivation>(in[i] + residual[i], low, high);
    }
  }
}

void Finish(const ConvolutionSpec& spec, const float* from,
            const float* residual, float* to, int64_t n) {
  switch (spec.activation) {
    case Activation::kNone:
      return FinishRow<Activation::kNone>(spec, from, residual, to, n);
    case Activation::kRelu:
      return FinishRow<Activation::kRelu>(spec, from, residual, to, n);
    case Activation::kClip:
      return FinishRow<Activation::kClip>(spec, from, residual, to, n);
  }
}

}  // namespace

absl::Status Sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c,
                   int64_t ldc) {
  UseOneThread();
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                 alpha, a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) {
    return ShortOfHostMemory(
        absl::ResourceExhaustedError("no memory for a matrix product"));
  }
  return absl::InternalError(absl::StrCat("oneDNN sgemm of ", m, " x ", n,
                                          " x ", k, ": status ",
                                          static_cast<int>(status)));
}

void Finish(const ConvolutionSpec& spec, const float* residual, float* sums,
            int64_t n) {
  Finish(spec, sums, residual, sums, n);
}

// Channels lie last inside: bands of rows are then contiguous, and oneDNN's
// fastest kernels take that layout as it is.
struct Convolution::State {
  ConvolutionSpec spec;
  size_t axis = 0;  // that of the bands; those before it have one row
  std::vector<Band> bands;
  int64_t slices = 1;  // of the output channels, where weights are large
  std::vector<BandPrimitive> primitives;
  std::vector<Form> forms;
  memory::desc weights_plain;  // of one slice
  memory::desc bias;
  std::vector<ImageMove> moves;  // of move_rows, and of the rows left over
  int64_t move_rows = 1;

  size_t image_bytes = 0;   // one input image, where it is moved
  size_t output_bytes = 0;  // of a piece, where it is not written in place
  size_t piece_bytes = 0;   // that and a scratchpad

  // Of one row along the axis.
  int64_t RowPixels(const std::array<int64_t, 3>& sizes) const {
    return std::accumulate(sizes.begin() + axis + 1, sizes.end(), int64_t{1},
                           std::multiplies<>());
  }
  int64_t InRowFloats() const { return RowPixels(spec.in) * spec.in_channels; }
  int64_t OutRowFloats() const {
    return RowPixels(spec.out) * spec.out_channels;
  }
  // oneDNN's layout changes are four times as fast for whole vectors of pixels.
  int64_t RowUnit() const {
    return spec.channels_last ? 1
                              : 16 / std::gcd(int64_t{16}, RowPixels(spec.out));
  }
  // For one position of the output, in all slices.
  double PixelProducts() const {
    const int64_t channels = spec.in_channels / spec.groups;
    return Product(spec.kernel) * static_cast<double>(channels) *
           static_cast<double>(spec.out_channels);
  }
  int64_t SliceChannels() const { return spec.out_channels / slices; }
  int64_t SliceWeights() const {
    return SliceChannels() * (spec.in_channels / spec.groups) * spec.kernel[0] *
           spec.kernel[1] * spec.kernel[2];
  }
  size_t SliceBytes(size_t form) const {
    return AlignUp(forms[form].packed.get_size(), kVectorAlignment);
  }
  int64_t Pieces() const {  // of an image
    return static_cast<int64_t>(bands.size()) * slices;
  }
  // Pieces that follow one another in one thread and one scratch memory.
  int64_t PiecesOfRun() const {
    return (Pieces() + kMaxPieces - 1) / kMaxPieces;
  }
  int64_t Runs() const {
    return (Pieces() + PiecesOfRun() - 1) / PiecesOfRun();
  }
  bool InPlace() const { return spec.channels_last && slices == 1; }
  bool Finishes() const {
    return spec.residual || spec.activation != Activation::kNone;
  }

  // Two spatial axes where the last of three is unused: oneDNN has more kernels
  // for them.
  bool Flat() const {
    return spec.in[2] == 1 && spec.out[2] == 1 && spec.kernel[2] == 1 &&
           spec.pad_begin[2] == 0;
  }
  size_t LastAxis() const { return Flat() ? 1 : 2; }
  struct Extent {
    int64_t in, out, before, after;
  };
  Extent Along(const Band& band, size_t i) const;
  RowShape Row(const Band& band) const;
  double LastTaps() const {
    return static_cast<double>(spec.kernel[LastAxis()]);
  }
  double MostBytes(const Band& band) const;

  void MakePieces();
  void MakeBands(int64_t count);
  void AddBand(int64_t begin, int64_t rows);
  void AddPadding(int64_t begin, int64_t rows);
  std::pair<int64_t, int64_t> DataRows() const;
  bool HasLongRow() const;
  double LargestBand() const;
  double LargestPiece() const;
  double LargestPositionTaps() const;
  bool IsLong() const;
  void CutSmaller();
  bool CutEvenly();
  std::vector<Band> ShareShapes();
  void Build(const std::vector<Band>& shapes);
  void BuildPrimitive(const Band& band);
  void BuildImageMove();
  bool TrustsBrgconv(const Band& band) const;
  std::shared_ptr<const Prepared> Prepare(const Band& band) const;
  size_t AddForm(const memory::desc& wanted);

  struct Running;
  void MoveImage(const Running& run, int64_t image) const;
  void RunPiece(const Running& run, int64_t image, int64_t piece,
                std::byte* own) const;
  void FillPiece(const Running& run, const Band& band, int64_t image,
                 int64_t slice) const;
  void FinishPiece(const Running& run, const Band& band, int64_t image,
                   int64_t slice, float* from) const;
};

class Convolution::Weights {
 public:
  // By form, then by slice.
  std::vector<memory> slices;
  std::vector<std::shared_ptr<const std::byte>> owners;
};

// As many as keep many cores busy, cut where the least memory is read: each
// band reads all weights, each slice all of the input.
void Convolution::State::MakePieces() {
  const auto out_channels = static_cast<double>(spec.out_channels);
  const double weights = PixelProducts();
  const double flops = 2.0 * Product(spec.out) * weights;
  const double output_bytes = sizeof(float) * Product(spec.out) * out_channels;
  const auto wanted = static_cast<int64_t>(std::clamp(
      std::max(flops / kFlopsPerPiece, output_bytes / kOutputBytesPerPiece),
      1.0, static_cast<double>(kMaxPieces)));
  const auto pixels = static_cast<int64_t>(Product(spec.out));
  const int64_t most_bands =
      std::min(spec.out[0], std::max<int64_t>(1, pixels / kMinPixelsPerBand));
  const double input = Product(spec.in) * static_cast<double>(spec.in_channels);
  int64_t best_bands = 1, best_count = 0;
  double best_read = 0;
  for (int64_t s = 1; s <= wanted; s *= 2) {
    const bool cuts =
        s == 1 ||
        (spec.groups == 1 && spec.out_channels % (s * kChannelsPerSlice) == 0);
    if (!cuts) break;
    const int64_t b = std::min(most_bands, (wanted + s - 1) / s);
    const int64_t count = std::min(wanted, s * b);
    const double read =
        static_cast<double>(s) * input + static_cast<double>(b) * weights;
    if (count < best_count || (count == best_count && read >= best_read)) {
      continue;
    }
    slices = s;
    best_bands = b;
    best_count = count;
    best_read = read;
  }
  MakeBands(best_bands);
}

void Convolution::State::MakeBands(int64_t count) {
  const auto [first, past] = DataRows();
  const int64_t rows = past - first, unit = RowUnit();
  AddPadding(0, first);
  const auto edge = [&, first = first](int64_t i) {
    const int64_t row = rows * i / count;
    return first + (i == count ? rows : row / unit * unit);
  };
  for (int64_t i = 0; i < count; ++i) {
    if (edge(i) < edge(i + 1)) AddBand(edge(i), edge(i + 1) - edge(i));
  }
  AddPadding(past, spec.out[axis] - past);
}

// The rows of the output that see more than padding.
std::pair<int64_t, int64_t> Convolution::State::DataRows() const {
  const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
  const int64_t stride = spec.stride[axis], pad = spec.pad_begin[axis];
  const int64_t first = pad < reach ? 0 : (pad - reach) / stride + 1;
  const int64_t past = (spec.in[axis] + pad - 1) / stride + 1;
  const int64_t begin = std::min(first, spec.out[axis]);
  return {begin, std::clamp(past, begin, spec.out[axis])};
}

void Convolution::State::AddPadding(int64_t begin, int64_t rows) {
  if (rows > 0) bands.push_back({.out_begin = begin, .out_rows = rows});
}

// Of rows that see more.
void Convolution::State::AddBand(int64_t begin, int64_t rows) {
  const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
  const int64_t first = begin * spec.stride[axis] - spec.pad_begin[axis];
  const int64_t last = first + (rows - 1) * spec.stride[axis] + reach;
  Band band = {.out_begin = begin, .out_rows = rows};
  band.in_begin = std::max<int64_t>(first, 0);
  band.in_rows = std::min(last, spec.in[axis]) - band.in_begin;
  band.pad_begin = band.in_begin - first;
  bands.push_back(band);
}

Convolution::State::Extent Convolution::State::Along(const Band& band,
                                                     size_t i) const {
  Extent extent = {spec.in[i], spec.out[i], spec.pad_begin[i], 0};
  if (i == axis) extent = {band.in_rows, band.out_rows, band.pad_begin, 0};
  extent.after = (extent.out - 1) * spec.stride[i] +
                 (spec.kernel[i] - 1) * spec.dilation[i] + 1 - extent.in -
                 extent.before;
  return extent;
}

RowShape Convolution::State::Row(const Band& band) const {
  const size_t last = LastAxis();
  const Extent row = Along(band, last);
  const int64_t stride = spec.stride[last];
  const auto windows = [stride](int64_t padding) {
    const int64_t touched =
        (std::max<int64_t>(padding, 0) + stride - 1) / stride;
    return static_cast<double>(touched);
  };
  const int64_t channels = spec.in_channels / spec.groups;
  const int64_t padding = std::max(row.before, row.after);
  const int64_t reach = (spec.kernel[last] - 1) * spec.dilation[last];
  RowShape shape = {
      .columns = static_cast<double>(row.out),
      .copied = static_cast<double>(row.before + row.in + row.after),
      .cut = std::min({static_cast<double>(row.out),
                       2 * static_cast<double>(spec.kernel[last]),
                       windows(row.before) + windows(row.after)}),
      .channels = static_cast<double>(channels),
      .taps = Product(spec.kernel),
      .pads_far =
          padding > 0 && (padding > kMostNearPadding || 2 * padding > reach ||
                          spec.dilation[last] > kMostNearDilation)};
  for (size_t i = 0; i < 3; ++i) {
    const Extent extent = Along(band, i);
    shape.pads = shape.pads || extent.before > 0 || extent.after > 0;
  }
  return shape;
}

// Whichever kernel oneDNN will take on this processor, and what changes the
// layouts of the result and of the weights.
double Convolution::State::MostBytes(const Band& band) const {
  const double taps = TapsBytes(LastTaps());
  return 2.0 * kReorderBytes +
         (MayTakeBrgconv() ? std::max(RowBytes(Row(band)), taps) : taps);
}

double Convolution::State::LargestBand() const {  // in pixels
  int64_t rows = 0;
  for (const Band& band : bands) {
    if (band.in_rows > 0) rows = std::max(rows, band.out_rows);
  }
  return static_cast<double>(rows) * static_cast<double>(RowPixels(spec.out));
}

double Convolution::State::LargestPiece() const {  // in products
  return LargestBand() * PixelProducts() / static_cast<double>(slices);
}

double Convolution::State::LargestPositionTaps() const {
  return LargestBand() * Product(spec.kernel);
}

bool Convolution::State::IsLong() const {
  return LargestPiece() > kMostProducts ||
         LargestPositionTaps() > kMostPositionTaps || HasLongRow();
}

// One that can be cut: it is all there is. It is cut alike on all processors.
bool Convolution::State::HasLongRow() const {
  for (size_t i = 0; i < LastAxis(); ++i) {
    if (spec.in[i] != 1 || spec.out[i] != 1) return false;
  }
  return std::any_of(bands.begin(), bands.end(), [&](const Band& band) {
    return band.in_rows > 0 &&
           std::max(RowBytes(Row(band)), TapsBytes(LastTaps())) > kMostRowBytes;
  });
}

// Along the first axis that has several rows: the only row of those before it
// lies in one part. Does nothing where too many primitives would be needed.
void Convolution::State::CutSmaller() {
  const auto old = std::make_tuple(axis, slices, bands);
  while (axis < 2 && spec.in[axis] == 1 && spec.out[axis] == 1) ++axis;
  const auto few =
      static_cast<double>(std::max(RowPixels(spec.out), kFewPixels));
  for (;; slices *= 2) {
    const bool last =
        spec.groups > 1 || spec.out_channels % (2 * slices * kFewChannels) != 0;
    const bool fits =
        few * PixelProducts() / static_cast<double>(slices) <= kMostProducts;
    if ((fits || last) && CutEvenly()) return;
    if (last) break;
  }
  std::tie(axis, slices, bands) = old;
}

// Into bands of equal size, so that few primitives do for them.
bool Convolution::State::CutEvenly() {
  bands.clear();
  const auto [first, past] = DataRows();
  const int64_t size = past - first, unit = RowUnit();
  const auto row = static_cast<double>(RowPixels(spec.out));
  double fit = std::min(
      kMostProducts * static_cast<double>(slices) / (row * PixelProducts()),
      kMostPositionTaps / (row * Product(spec.kernel)));
  if (axis == LastAxis()) {
    const auto most = std::max(kColumnsPerBand, size / kMostBands + 1);
    fit = std::min(fit, static_cast<double>(most));
  }
  auto rows = static_cast<int64_t>(
      std::clamp(fit, 1.0, static_cast<double>(std::max<int64_t>(size, 1))));
  if (rows > unit) rows = rows / unit * unit;
  std::set<std::array<int64_t, 3>> shapes;
  AddPadding(0, first);
  for (int64_t begin = first; begin < past; begin += rows) {
    AddBand(begin, std::min(rows, past - begin));
    const Band& band = bands.back();
    shapes.insert({band.out_rows, band.in_rows, band.pad_begin});
    if (shapes.size() > kMostPrimitives) return false;
  }
  AddPadding(past, spec.out[axis] - past);
  return true;
}

// Each primitive gets the weights that it asks for: in another's form oneDNN
// may have nothing but its reference code.
size_t Convolution::State::AddForm(const memory::desc& wanted) {
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].packed == wanted) return i;
  }
  forms.push_back({wanted, MakeReorder(weights_plain, wanted)});
  return forms.size() - 1;
}

bool Convolution::State::TrustsBrgconv(const Band& band) const {
  const size_t last = LastAxis();
  return spec.stride[last] != 1 || Along(band, last).after <= kTrustedPadding;
}

// Throws dnnl::error where oneDNN has nothing for it.
std::shared_ptr<const Prepared> Convolution::State::Prepare(
    const Band& band) const {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  memory::dims in = {1, s.in_channels};
  memory::dims out = {1, SliceChannels()};
  memory::dims before, after, stride, dilation;
  for (size_t i = 0; i <= LastAxis(); ++i) {
    const Extent extent = Along(band, i);
    in.push_back(extent.in);
    out.push_back(extent.out);
    before.push_back(extent.before);
    after.push_back(extent.after);
    stride.push_back(s.stride[i]);
    dilation.push_back(s.dilation[i] - 1);
  }
  const memory::dims weights = weights_plain.dims();
  Shape shape = {s.bias};
  for (const memory::dims& dims :
       {in, out, before, after, stride, dilation, weights}) {
    shape.push_back(static_cast<int64_t>(dims.size()));
    shape.insert(shape.end(), dims.begin(), dims.end());
  }
  auto& table = LivingTable<Prepared>::Get();
  if (auto living = table.Find(shape)) return living;

  const Tag channels_last = Flat() ? Tag::nhwc : Tag::ndhwc;
  const dnnl::convolution_forward::desc description(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      memory::desc(in, f32, channels_last),
      memory::desc(weights, f32, Tag::any), bias,
      memory::desc(out, f32, channels_last), stride, dilation, before, after);
  dnnl::convolution_forward::primitive_desc primitive(description, Attributes(),
                                                      Engine());
  if (!TrustsBrgconv(band)) {
    while (IsBrgconv(primitive.impl_info_str())) {
      if (!primitive.next_impl()) {
        throw dnnl::error(dnnl_unimplemented, "no other implementation");
      }
    }
  }
  return table.Share(
      shape, {dnnl::convolution_forward(primitive), primitive.impl_info_str(),
              primitive.weights_desc(), primitive.scratchpad_desc()});
}

void Convolution::State::BuildPrimitive(const Band& band) {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  const bool flat = Flat();
  const auto cut = [flat](memory::dims dims) {
    if (flat) dims.pop_back();
    return dims;
  };
  const Tag channels_last = flat ? Tag::nhwc : Tag::ndhwc;
  memory::dims in = {1, s.in_channels, s.in[0], s.in[1], s.in[2]};
  memory::dims out = {1, SliceChannels(), s.out[0], s.out[1], s.out[2]};
  in[axis + 2] = band.in_rows;
  out[axis + 2] = band.out_rows;

  BandPrimitive made;
  made.input = memory::desc(cut(in), f32, channels_last);
  made.output = memory::desc(cut(out), f32, channels_last);
  made.prepared = Prepare(band);
  made.kept_bytes = static_cast<size_t>(IsBrgconv(made.prepared->name)
                                            ? RowBytes(Row(band))
                                            : TapsBytes(LastTaps()));
  made.form = AddForm(made.prepared->weights);
  if (!s.channels_last) {
    const int64_t plane = s.out[1] * s.out[2];
    made.output_planes =
        memory::desc(cut(out), f32,
                     cut({s.out_channels * s.out[0] * plane, s.out[0] * plane,
                          plane, s.out[2], 1}));
    made.to_planes = MakeReorder(made.output, made.output_planes);
  }
  if (!InPlace()) {
    output_bytes = std::max(output_bytes,
                            AlignUp(made.output.get_size(), kVectorAlignment));
  }
  piece_bytes =
      std::max(piece_bytes,
               AlignUp(made.prepared->scratchpad.get_size(), kVectorAlignment));
  primitives.push_back(std::move(made));
}

// An image is moved in parts of some 16 MB, for what is one call is not asked
// within.
void Convolution::State::BuildImageMove() {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  const int64_t in_plane = s.in[1] * s.in[2];
  const int64_t rows = s.in[axis];
  move_rows = std::clamp<int64_t>(kMostMoved / InRowFloats(), 1, rows);
  for (const int64_t part : {move_rows, rows % move_rows}) {
    if (part == 0) continue;
    memory::dims dims = {1, s.in_channels, s.in[0], s.in[1], s.in[2]};
    dims[axis + 2] = part;
    memory::dims strides = {s.in_channels * s.in[0] * in_plane,
                            s.in[0] * in_plane, in_plane, s.in[2], 1};
    if (Flat()) {
      dims.pop_back();
      strides.pop_back();
    }
    ImageMove move;
    move.planes = memory::desc(dims, f32, strides);
    move.channels_last =
        memory::desc(dims, f32, Flat() ? Tag::nhwc : Tag::ndhwc);
    move.reorder = MakeReorder(move.planes, move.channels_last);
    moves.push_back(std::move(move));
  }
  image_bytes =
      AlignUp(static_cast<size_t>(rows * InRowFloats()) * sizeof(float),
              kVectorAlignment);
}

// Those of different shape, which the bands then name.
std::vector<Band> Convolution::State::ShareShapes() {
  std::vector<Band> shapes;
  for (Band& band : bands) {
    if (band.in_rows == 0) continue;
    const auto same =
        std::find_if(shapes.begin(), shapes.end(), [&](const Band& shape) {
          return shape.out_rows == band.out_rows &&
                 shape.in_rows == band.in_rows &&
                 shape.pad_begin == band.pad_begin;
        });
    band.primitive = static_cast<size_t>(same - shapes.begin());
    if (same == shapes.end()) shapes.push_back(band);
  }
  return shapes;
}

void Convolution::State::Build(const std::vector<Band>& shapes) {
  const auto f32 = memory::data_type::f32;
  memory::dims weights = {SliceChannels() / spec.groups,
                          spec.in_channels / spec.groups, spec.kernel[0],
                          spec.kernel[1], spec.kernel[2]};
  if (spec.groups > 1) weights.insert(weights.begin(), spec.groups);
  if (Flat()) weights.pop_back();
  memory::dims strides(weights.size());
  int64_t step = 1;
  for (size_t i = weights.size(); i-- > 0; step *= weights[i]) {
    strides[i] = step;
  }
  weights_plain = memory::desc(weights, f32, strides);
  if (spec.bias) {
    bias = memory::desc({SliceChannels()}, f32, memory::format_tag::a);
  }
  if (!spec.channels_last && !shapes.empty()) BuildImageMove();
  for (const Band& band : shapes) BuildPrimitive(band);
  piece_bytes += output_bytes;
}

Convolution::Convolution(std::unique_ptr<const State> state)
    : state_(std::move(state)) {}
Convolution::~Convolution() = default;

absl::StatusOr<std::unique_ptr<const Convolution>> Convolution::Create(
    const ConvolutionSpec& spec) {
  auto state = std::make_unique<State>();
  state->spec = spec;
  state->MakePieces();
  if (state->IsLong()) state->CutSmaller();
  if (state->LargestPiece() > kMostUncutProducts ||
      state->LargestPositionTaps() > kMostUncutPositionTaps) {
    return nullptr;
  }
  const std::vector<Band> shapes = state->ShareShapes();
  double kept = 2.0 * kReorderBytes;  // which move the image
  for (const Band& band : shapes) kept += state->MostBytes(band);
  if (kept > kMostKeptBytes) return nullptr;
  const absl::Status built = Guard([&] { state->Build(shapes); });
  if (absl::IsUnimplemented(built)) return nullptr;
  WEIR_RETURN_IF_ERROR(built);
  return std::unique_ptr<const Convolution>(new Convolution(std::move(state)));
}

size_t Convolution::forms() const { return state_->forms.size(); }

std::string Convolution::FormName(size_t form) const {
  const dnnl_memory_desc_t& desc = state_->forms[form].packed.data;
  const dnnl_blocking_desc_t& blocks = desc.format_desc.blocking;
  std::string name = absl::StrCat("conv/", state_->slices);
  for (int i = 0; i < desc.ndims; ++i) {
    absl::StrAppend(&name, "/", desc.dims[i], ":", desc.padded_dims[i], ":",
                    blocks.strides[i]);
  }
  for (int i = 0; i < blocks.inner_nblks; ++i) {
    absl::StrAppend(&name, "/", blocks.inner_idxs[i], "x",
                    blocks.inner_blks[i]);
  }
  return name;
}

size_t Convolution::FormBytes(size_t form) const {
  return static_cast<size_t>(state_->slices) * state_->SliceBytes(form);
}

absl::Status Convolution::Pack(size_t form, const float* weights,
                               std::byte* packed) const {
  return PackAsking(nullptr, form, weights, packed);
}

absl::Status Convolution::PackAsking(CpuTeam* team, size_t form,
                                     const float* weights,
                                     std::byte* packed) const {
  const State& s = *state_;
  return Guard([&] {
    dnnl::stream stream(Engine());
    for (int64_t i = 0; i < s.slices; ++i) {
      if (team != nullptr && team->GivenUp()) return;
      memory from = At(s.weights_plain,
                       const_cast<float*>(weights + i * s.SliceWeights()));
      memory to = At(s.forms[form].packed,
                     packed + static_cast<size_t>(i) * s.SliceBytes(form));
      s.forms[form].pack->execute(stream, from, to);
    }
    stream.wait();
  });
}

// To make a memory object writes nothing: others may read a shared copy.
absl::StatusOr<std::shared_ptr<const Convolution::Weights>> Convolution::Hold(
    std::vector<std::shared_ptr<const std::byte>> packed) const {
  const State& s = *state_;
  auto weights = std::make_shared<Weights>();
  WEIR_RETURN_IF_ERROR(Guard([&] {
    for (size_t form = 0; form < s.forms.size(); ++form) {
      auto* at = const_cast<std::byte*>(packed[form].get());
      for (int64_t i = 0; i < s.slices; ++i, at += s.SliceBytes(form)) {
        weights->slices.push_back(At(s.forms[form].packed, at));
      }
    }
  }));
  weights->owners = std::move(packed);
  return weights;
}

size_t Convolution::held_bytes() const {
  const State& s = *state_;
  size_t bytes =
      sizeof(State) + s.bands.size() * sizeof(Band) +
      s.primitives.size() * sizeof(BandPrimitive) +
      s.moves.size() * sizeof(ImageMove) +
      s.forms.size() * (sizeof(Form) + static_cast<size_t>(s.slices) *
                                           sizeof(dnnl_memory_desc_t));
  for (const SharedHold& hold : shared_holds()) bytes += hold.bytes;
  return bytes;
}

std::vector<SharedHold> Convolution::shared_holds() const {
  std::vector<SharedHold> holds;
  std::set<const void*> seen;
  const auto add = [&](const void* object, size_t bytes) {
    if (object != nullptr && seen.insert(object).second) {
      holds.push_back({object, bytes});
    }
  };
  for (const BandPrimitive& made : state_->primitives) {
    add(made.prepared.get(), made.kept_bytes);
    add(made.to_planes.get(), kReorderBytes);
  }
  for (const Form& form : state_->forms) add(form.pack.get(), kReorderBytes);
  for (const ImageMove& move : state_->moves) {
    add(move.reorder.get(), kReorderBytes);
  }
  return holds;
}

size_t Convolution::scratch_bytes(bool packs) const {
  const State& s = *state_;
  size_t bytes =
      static_cast<size_t>(s.spec.batch) *
      (s.image_bytes + static_cast<size_t>(s.Runs()) * s.piece_bytes);
  for (size_t form = 0; packs && form < s.forms.size(); ++form) {
    bytes += FormBytes(form);
  }
  return bytes;
}

std::string Convolution::implementation() const {
  std::vector<std::string> names;
  for (const BandPrimitive& made : state_->primitives) {
    const std::string& name = made.prepared->name;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return absl::StrJoin(names, " ");
}

struct Convolution::State::Running {
  CpuTeam* team;  // may be null
  const Operands& operands;
  const Weights& weights;
  std::byte* images;
  std::byte* pieces;
};

void Convolution::State::MoveImage(const Running& run, int64_t image) const {
  dnnl::stream stream(Engine());
  const int64_t rows = spec.in[axis];
  const float* from = run.operands.input + image * rows * InRowFloats();
  auto* to = reinterpret_cast<float*>(run.images +
                                      static_cast<size_t>(image) * image_bytes);
  for (int64_t row = 0; row < rows; row += move_rows) {
    if (row > 0 && run.team != nullptr && run.team->GivenUp()) return;
    const ImageMove& move = rows - row < move_rows ? moves.back() : moves[0];
    memory planes =
        At(move.planes, const_cast<float*>(from + row * RowPixels(spec.in)));
    memory channels_last = At(move.channels_last, to + row * InRowFloats());
    move.reorder->execute(stream, planes, channels_last);
    stream.wait();
  }
}

// Slices innermost: neighbors share a band of the input.
void Convolution::State::RunPiece(const Running& run, int64_t image,
                                  int64_t piece, std::byte* own) const {
  const int64_t slice = piece % slices;
  const Band& band = bands[static_cast<size_t>(piece / slices)];
  if (band.in_rows == 0) return FillPiece(run, band, image, slice);
  const BandPrimitive& made = primitives[band.primitive];
  const float* const input =
      spec.channels_last
          ? run.operands.input + image * spec.in[axis] * InRowFloats()
          : reinterpret_cast<const float*>(
                run.images + static_cast<size_t>(image) * image_bytes);
  float* const result =
      InPlace() ? run.operands.output +
                      (image * spec.out[axis] + band.out_begin) * OutRowFloats()
                : reinterpret_cast<float*>(own);
  dnnl::stream stream(Engine());
  // oneDNN's handles are not const; sources are only read.
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC,
       At(made.input,
          const_cast<float*>(input + band.in_begin * InRowFloats()))},
      {DNNL_ARG_WEIGHTS,
       run.weights.slices[made.form * static_cast<size_t>(slices) +
                          static_cast<size_t>(slice)]},
      {DNNL_ARG_DST, At(made.output, result)},
  };
  if (spec.bias) {
    const float* from = run.operands.bias + slice * SliceChannels();
    arguments.emplace(DNNL_ARG_BIAS, At(bias, const_cast<float*>(from)));
  }
  const Prepared& prepared = *made.prepared;
  if (prepared.scratchpad.get_size() > 0) {
    arguments.emplace(DNNL_ARG_SCRATCHPAD,
                      At(prepared.scratchpad, own + output_bytes));
  }
  prepared.convolution.execute(stream, arguments);
  stream.wait();
  FinishPiece(run, band, image, slice, result);
}

// Adds the residual, applies the activation, and takes the result to its place.
void Convolution::State::FinishPiece(const Running& run, const Band& band,
                                     int64_t image, int64_t slice,
                                     float* from) const {
  const int64_t row = RowPixels(spec.out);
  const int64_t pixels = band.out_rows * row;
  const int64_t first_channel = slice * SliceChannels();
  if (!spec.channels_last) {
    const BandPrimitive& made = primitives[band.primitive];
    const int64_t plane = spec.out[axis] * row;
    int64_t begin = (image * spec.out_channels + first_channel) * plane +
                    band.out_begin * row;
    dnnl::stream stream(Engine());
    memory planes = At(made.output_planes, run.operands.output + begin);
    memory piece = At(made.output, from);
    made.to_planes->execute(stream, piece, planes);
    stream.wait();
    for (int64_t c = 0; Finishes() && c < SliceChannels(); ++c) {
      float* const part = run.operands.output + begin;
      Finish(spec, part,
             spec.residual ? run.operands.residual + begin : nullptr, part,
             pixels);
      begin += plane;
    }
    return;
  }
  if (InPlace() && !Finishes()) return;
  const int64_t begin =
      (image * spec.out[axis] + band.out_begin) * OutRowFloats() +
      first_channel;
  const float* residual =
      spec.residual ? run.operands.residual + begin : nullptr;
  float* to = run.operands.output + begin;
  if (InPlace()) {
    return Finish(spec, from, residual, to, pixels * SliceChannels());
  }
  for (int64_t p = 0; p < pixels; ++p) {
    Finish(spec, from, residual, to, SliceChannels());
    from += SliceChannels();
    to += spec.out_channels;
    if (residual != nullptr) residual += spec.out_channels;
  }
}

// What sees padding alone: the bias everywhere, and what follows it.
void Convolution::State::FillPiece(const Running& run, const Band& band,
                                   int64_t image, int64_t slice) const {
  constexpr int64_t kPart = int64_t{1} << 16;
  GiveUpQuestion given_up(run.team);
  const int64_t row = RowPixels(spec.out), plane = spec.out[axis] * row;
  const int64_t channels = SliceChannels(), first = slice * channels;
  const auto bias_of = [&](int64_t c) {
    return spec.bias ? run.operands.bias[first + c] : 0.0f;
  };
  const auto finish = [&](int64_t at, int64_t n) {
    float* const to = run.operands.output + at;
    Finish(spec, to, spec.residual ? run.operands.residual + at : nullptr, to,
           n);
  };
  const int64_t begin = band.out_begin * row;
  const int64_t past = begin + band.out_rows * row;
  for (int64_t p = begin; spec.channels_last && p < past; ++p) {
    if (given_up.Asked(channels)) return;
    const int64_t at = (image * plane + p) * spec.out_channels + first;
    for (int64_t c = 0; c < channels; ++c) {
      run.operands.output[at + c] = bias_of(c);
    }
    finish(at, channels);
  }
  for (int64_t c = 0; !spec.channels_last && c < channels; ++c) {
    const int64_t base = (image * spec.out_channels + first + c) * plane;
    for (int64_t p = begin; p < past; p += kPart) {
      const int64_t n = std::min(kPart, past - p);
      if (given_up.Asked(n)) return;
      std::fill_n(run.operands.output + base + p, n, bias_of(c));
      finish(base + p, n);
    }
  }
}

absl::Status Convolution::Run(CpuTeam* team, const Operands& operands,
                              void* scratch) const {
  const State& s = *state_;
  auto* next = static_cast<std::byte*>(scratch);
  std::shared_ptr<const Weights> packed;
  if (operands.held == nullptr) {
    std::vector<std::shared_ptr<const std::byte>> forms;
    for (size_t form = 0; form < s.forms.size(); ++form) {
      // The scratch memory is the caller's: nothing to free.
      forms.emplace_back(std::shared_ptr<void>(), next);
      WEIR_RETURN_IF_ERROR(PackAsking(team, form, operands.weights, next));
      next += FormBytes(form);
    }
    WEIR_ASSIGN_OR_RETURN(packed, Hold(std::move(forms)));
  }
  const State::Running run = {
      team, operands, operands.held == nullptr ? *packed : *operands.held, next,
      next + static_cast<size_t>(s.spec.batch) * s.image_bytes};
  if (!s.moves.empty()) {
    WEIR_RETURN_IF_ERROR(
        ParallelForStatus(team, s.spec.batch, [&](int64_t image) {
          return Guard([&] { s.MoveImage(run, image); });
        }));
  }
  // Which pieces are one run depends on shapes alone, as the pieces do.
  return ParallelForStatus(team, s.spec.batch * s.Runs(), [&](int64_t i) {
    return Guard([&] {
      std::byte* const own =
          run.pieces + static_cast<size_t>(i) * s.piece_bytes;
      const int64_t begin = i % s.Runs() * s.PiecesOfRun();
      const int64_t end = std::min(begin + s.PiecesOfRun(), s.Pieces());
      for (int64_t piece = begin; piece < end; ++piece) {
        if (piece > begin && team != nullptr && team->GivenUp()) return;
        s.RunPiece(run, i / s.Runs(), piece, own);
      }
    });
  });
}

}  // namespace weir::onednn
