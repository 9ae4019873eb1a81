#include "kernels/ops/convolution_pieces.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace weir::onednn {
namespace {

constexpr double kKiB = 1024;

// Beside more padding than this, or where taps lie wider apart, a run of each
// length may have a kernel of its own.
constexpr int64_t kMostNearPadding = 6;
constexpr int64_t kMostNearDilation = 2;

// With 2.6 these sum up what lies behind the row in place of padding, where 4
// to 6 columns of it are touched by rows of 7, 9 or 11: the next row's pixel,
// or what follows the input in memory. Other lengths and more padding gave
// right answers, and are not trusted either.
constexpr int64_t kTrustedPadding = 3;

// A row of more is cut: a primitive takes milliseconds to generate, and its
// parts run side by side.
constexpr double kMostRowBytes = 2 << 20;
constexpr int64_t kColumnsPerBand = 512;
constexpr int64_t kMostBands = int64_t{1} << 16;

// A piece of some 10 Mflop keeps a core busy for 0.1 ms; its output stays in
// the second-level cache until it is finished. Bands of fewer pixels would
// mostly load weights; slices of fewer channels waste registers.
constexpr double kFlopsPerPiece = 10e6;
constexpr double kOutputBytesPerPiece = 256 << 10;
constexpr int64_t kMaxPieces = 16;
constexpr int64_t kMinPixelsPerBand = 98;
constexpr int64_t kChannelsPerSlice = 64;

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

}  // namespace

double RowBytes(const RowShape& row) {
  const double blocks = std::ceil(row.channels / 16);
  if (row.taps == 1 && !row.pads) {
    return kKiB * (160 + blocks + 0.3 * row.columns);
  }
  return kKiB * (160 + blocks + row.copied * (0.1 + 0.042 * blocks) +
                 row.columns * (row.pads_far ? 4.9 : 1.4) + 40 * row.cut +
                 0.05 * row.taps);
}

double TapsBytes(double taps) {
  return kKiB * (100 + std::min(16 * taps, 350.0) + 2.8 * taps);
}

std::optional<ConvolutionPieces> ConvolutionPieces::Cut(
    const ConvolutionSpec& spec) {
  ConvolutionPieces pieces;
  pieces.spec = spec;
  pieces.MakePieces();
  if (pieces.IsLong()) pieces.CutSmaller();
  if (pieces.LargestPiece() > kMostUncutProducts ||
      pieces.LargestPositionTaps() > kMostUncutPositionTaps) {
    return std::nullopt;
  }
  return pieces;
}

int64_t ConvolutionPieces::PiecesOfRun() const {
  return (Pieces() + kMaxPieces - 1) / kMaxPieces;
}

// oneDNN's layout changes are four times as fast for whole vectors of pixels.
int64_t ConvolutionPieces::RowUnit() const {
  return spec.channels_last ? 1
                            : 16 / std::gcd(int64_t{16}, RowPixels(spec.out));
}

// For one position of the output, in all slices.
double ConvolutionPieces::PixelProducts() const {
  const int64_t channels = spec.in_channels / spec.groups;
  return Product(spec.kernel) * static_cast<double>(channels) *
         static_cast<double>(spec.out_channels);
}

// As many as keep many cores busy, cut where the least memory is read: each
// band reads all weights, each slice all of the input.
void ConvolutionPieces::MakePieces() {
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

void ConvolutionPieces::MakeBands(int64_t count) {
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
std::pair<int64_t, int64_t> ConvolutionPieces::DataRows() const {
  const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
  const int64_t stride = spec.stride[axis], pad = spec.pad_begin[axis];
  const int64_t first = pad < reach ? 0 : (pad - reach) / stride + 1;
  const int64_t past = (spec.in[axis] + pad - 1) / stride + 1;
  const int64_t begin = std::min(first, spec.out[axis]);
  return {begin, std::clamp(past, begin, spec.out[axis])};
}

void ConvolutionPieces::AddPadding(int64_t begin, int64_t rows) {
  if (rows > 0) bands.push_back({.out_begin = begin, .out_rows = rows});
}

// Of rows that see more.
void ConvolutionPieces::AddBand(int64_t begin, int64_t rows) {
  const int64_t reach = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
  const int64_t first = begin * spec.stride[axis] - spec.pad_begin[axis];
  const int64_t last = first + (rows - 1) * spec.stride[axis] + reach;
  Band band = {.out_begin = begin, .out_rows = rows};
  band.in_begin = std::max<int64_t>(first, 0);
  band.in_rows = std::min(last, spec.in[axis]) - band.in_begin;
  band.pad_begin = band.in_begin - first;
  bands.push_back(band);
}

ConvolutionPieces::Extent ConvolutionPieces::Along(const Band& band,
                                                   size_t i) const {
  Extent extent = {spec.in[i], spec.out[i], spec.pad_begin[i], 0};
  if (i == axis) extent = {band.in_rows, band.out_rows, band.pad_begin, 0};
  extent.after = (extent.out - 1) * spec.stride[i] +
                 (spec.kernel[i] - 1) * spec.dilation[i] + 1 - extent.in -
                 extent.before;
  return extent;
}

RowShape ConvolutionPieces::Row(const Band& band) const {
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

double ConvolutionPieces::KeptBytes(const Band& band, bool by_row) const {
  return by_row ? RowBytes(Row(band)) : TapsBytes(LastTaps());
}

double ConvolutionPieces::MostBytes(const Band& band,
                                    bool may_be_by_row) const {
  const double by_taps = KeptBytes(band, /*by_row=*/false);
  return 2.0 * kReorderBytes +
         (may_be_by_row ? std::max(KeptBytes(band, /*by_row=*/true), by_taps)
                        : by_taps);
}

double ConvolutionPieces::LargestBand() const {  // in pixels
  int64_t rows = 0;
  for (const Band& band : bands) {
    if (band.in_rows > 0) rows = std::max(rows, band.out_rows);
  }
  return static_cast<double>(rows) * static_cast<double>(RowPixels(spec.out));
}

double ConvolutionPieces::LargestPiece() const {  // in products
  return LargestBand() * PixelProducts() / static_cast<double>(slices);
}

double ConvolutionPieces::LargestPositionTaps() const {
  return LargestBand() * Product(spec.kernel);
}

bool ConvolutionPieces::IsLong() const {
  return LargestPiece() > kMostProducts ||
         LargestPositionTaps() > kMostPositionTaps || HasLongRow();
}

// One that can be cut: it is all there is. It is cut alike on all processors.
bool ConvolutionPieces::HasLongRow() const {
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
void ConvolutionPieces::CutSmaller() {
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
bool ConvolutionPieces::CutEvenly() {
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

std::vector<Band> ConvolutionPieces::ShareShapes() {
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

bool ConvolutionPieces::TrustsRows(const Band& band) const {
  const size_t last = LastAxis();
  return spec.stride[last] != 1 || Along(band, last).after <= kTrustedPadding;
}

}  // namespace weir::onednn
