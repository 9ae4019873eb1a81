// How a convolution is cut into calls of a library, by its shapes alone: bands
// of rows and slices of output channels, such that many cores are busy, each
// call soon ends, and little code has to be generated. And how much memory that
// code takes at most. Needs neither library nor device. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/export.h"
#include "kernels/ops/convolution_spec.h"

namespace weir::onednn {

// Rows, which lie along ConvolutionPieces::axis, that are computed as one
// piece.
struct Band {
  int64_t out_begin = 0;
  int64_t out_rows = 0;
  int64_t in_begin = 0;
  int64_t in_rows = 0;  // none: it sees padding alone, and has no primitive
  int64_t pad_begin = 0;
  size_t primitive = 0;  // of ConvolutionPieces::ShareShapes
};

// What a row's shape has the library keep: tables for each length that a run of
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

// oneDNN does not tell what it keeps for a convolution. These are upper
// estimates, in bytes, of what was measured of 60,000 of them with 2.6 for
// AVX-512, AVX2 and SSE4.1, code and tables together; most take a half.
WEIR_EXPORT double RowBytes(const RowShape& row);  // of its newer kernels
WEIR_EXPORT double TapsBytes(double taps);         // of the others
// A change of layout: 14 KiB, some of them 18.
inline constexpr size_t kReorderBytes = 20 << 10;
// What a convolution may keep in all, some second to generate.
inline constexpr double kMostKeptBytes = 128 << 20;

// A call of the library asks nobody whether it is still wanted: a larger one is
// cut further, by tenths of a second, though its pieces be less than ideal.
inline constexpr double kMostProducts = 2.5e9;

struct WEIR_EXPORT ConvolutionPieces {
  // Nothing where a call would last for many seconds.
  static std::optional<ConvolutionPieces> Cut(const ConvolutionSpec& spec);

  ConvolutionSpec spec;
  size_t axis = 0;          // that of the bands; those before it have one row
  std::vector<Band> bands;  // all rows of the output, in order
  int64_t slices = 1;       // of the output channels, where weights are large

  // Of one row along the axis.
  int64_t RowPixels(const std::array<int64_t, 3>& sizes) const {
    return std::accumulate(sizes.begin() + axis + 1, sizes.end(), int64_t{1},
                           std::multiplies<>());
  }
  int64_t InRowFloats() const { return RowPixels(spec.in) * spec.in_channels; }
  int64_t OutRowFloats() const {
    return RowPixels(spec.out) * spec.out_channels;
  }
  int64_t SliceChannels() const { return spec.out_channels / slices; }
  int64_t SliceWeights() const {
    return SliceChannels() * (spec.in_channels / spec.groups) * spec.kernel[0] *
           spec.kernel[1] * spec.kernel[2];
  }
  int64_t Pieces() const {  // of an image
    return static_cast<int64_t>(bands.size()) * slices;
  }
  // Pieces that follow one another in one thread and one scratch memory.
  int64_t PiecesOfRun() const;
  int64_t Runs() const {
    return (Pieces() + PiecesOfRun() - 1) / PiecesOfRun();
  }
  bool InPlace() const { return spec.channels_last && slices == 1; }
  bool Finishes() const {
    return spec.residual ||
           spec.activation != ConvolutionSpec::Activation::kNone;
  }

  // Two spatial axes where the last of three is unused: the library has more
  // kernels for them.
  bool Flat() const {
    return spec.in[2] == 1 && spec.out[2] == 1 && spec.kernel[2] == 1 &&
           spec.pad_begin[2] == 0;
  }
  size_t LastAxis() const { return Flat() ? 1 : 2; }
  // Of a band along axis i, with the padding before and after it.
  struct Extent {
    int64_t in, out, before, after;
  };
  Extent Along(const Band& band, size_t i) const;

  // Bands of different shape, which the others then name.
  std::vector<Band> ShareShapes();

  // What a band's primitive keeps by one of the newer kernels, which also cost
  // most of memory, or by another; and with what changes layouts at most, by
  // whichever of those that the processor has.
  double KeptBytes(const Band& band, bool by_row) const;
  double MostBytes(const Band& band, bool may_be_by_row) const;
  // Whether one of them is right there.
  bool TrustsRows(const Band& band) const;

 private:
  int64_t RowUnit() const;
  double PixelProducts() const;
  double LastTaps() const {
    return static_cast<double>(spec.kernel[LastAxis()]);
  }
  RowShape Row(const Band& band) const;
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
};

}  // namespace weir::onednn
