#include "tests/ops/image/test_images.h"

// jpeglib.h uses FILE without including its header.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace weir::image {
namespace {

void Append(Bytes& bytes, std::span<const uint8_t> more) {
  for (const uint8_t byte : more) bytes.push_back(std::byte{byte});
}

std::vector<uint8_t> TiffWithOrientation(int orientation, bool little) {
  const auto value = static_cast<uint8_t>(orientation);
  if (little) {
    return {'I',  'I', 42, 0, 8, 0, 0, 0, 1,     0,  // one entry
            0x12, 1,   3,  0, 1, 0, 0, 0, value, 0, 0, 0, 0, 0, 0, 0};
  }
  return {'M', 'M', 0, 42, 0, 0, 0,     8, 0, 1, 1, 0x12, 0,
          3,   0,   0, 0,  1, 0, value, 0, 0, 0, 0, 0,    0};
}

uint32_t Crc(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int i = 0; i < 8; ++i) {
      crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
  }
  return ~crc;
}

void AppendBigEndian(Bytes& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<std::byte>(value >> shift));
  }
}

void AppendChunk(Bytes& png, std::string_view type,
                 std::span<const uint8_t> data) {
  AppendBigEndian(png, static_cast<uint32_t>(data.size()));
  const size_t begin = png.size();
  for (const char c : type) png.push_back(static_cast<std::byte>(c));
  Append(png, data);
  AppendBigEndian(png, Crc(std::span(png).subspan(begin)));
}

// zlib data of stored blocks: no compressor needed.
std::vector<uint8_t> StoredZlib(std::span<const uint8_t> raw) {
  std::vector<uint8_t> out = {0x78, 0x01};
  uint32_t a = 1;
  uint32_t b = 0;
  for (const uint8_t byte : raw) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  constexpr size_t kBlock = 65535;
  size_t begin = 0;
  do {
    const size_t count = std::min(kBlock, raw.size() - begin);
    const bool last = begin + count == raw.size();
    const auto low = static_cast<uint8_t>(count & 0xFF);
    const auto high = static_cast<uint8_t>(count >> 8);
    for (const int byte :
         {int{last}, int{low}, int{high}, 255 - low, 255 - high}) {
      out.push_back(static_cast<uint8_t>(byte));
    }
    out.insert(out.end(), raw.begin() + static_cast<ptrdiff_t>(begin),
               raw.begin() + static_cast<ptrdiff_t>(begin + count));
    begin += count;
  } while (begin < raw.size());
  for (const uint32_t half : {b, a}) {
    out.push_back(static_cast<uint8_t>(half >> 8));
    out.push_back(static_cast<uint8_t>(half & 0xFF));
  }
  return out;
}

int SamplesPerPixel(int color_type) {
  switch (color_type) {
    case 2:
      return 3;
    case 4:
      return 2;
    case 6:
      return 4;
    default:
      return 1;
  }
}

// One pass of rows: x0, y0, step_x, step_y.
using Pass = std::array<int64_t, 4>;

void AppendPass(std::span<const uint16_t> samples, int64_t height,
                int64_t width, const PngOptions& options, const Pass& pass,
                std::vector<uint8_t>& raw) {
  const int per_pixel = SamplesPerPixel(options.color_type);
  for (int64_t y = pass[1]; y < height; y += pass[3]) {
    if (pass[0] >= width) return;
    raw.push_back(0);  // no filter
    uint32_t pending = 0;
    int bits = 0;
    for (int64_t x = pass[0]; x < width; x += pass[2]) {
      for (int s = 0; s < per_pixel; ++s) {
        const uint16_t value =
            samples[static_cast<size_t>((y * width + x) * per_pixel + s)];
        pending = pending << options.bit_depth | value;
        bits += options.bit_depth;
        for (; bits >= 8; bits -= 8) {
          raw.push_back(static_cast<uint8_t>(pending >> (bits - 8)));
        }
      }
    }
    if (bits > 0) raw.push_back(static_cast<uint8_t>(pending << (8 - bits)));
  }
}

constexpr std::array<uint8_t, 8> kPngStart = {0x89, 'P',  'N',  'G',
                                              '\r', '\n', 0x1A, '\n'};

Bytes PngHeader(uint32_t height, uint32_t width, const PngOptions& options) {
  Bytes png;
  Append(png, kPngStart);
  std::vector<uint8_t> header;
  for (const uint32_t side : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      header.push_back(static_cast<uint8_t>(side >> shift));
    }
  }
  header.push_back(static_cast<uint8_t>(options.bit_depth));
  header.push_back(static_cast<uint8_t>(options.color_type));
  header.push_back(0);
  header.push_back(0);
  header.push_back(options.interlaced ? 1 : 0);
  AppendChunk(png, "IHDR", header);
  return png;
}

}  // namespace

std::vector<uint8_t> SmoothPicture(int64_t height, int64_t width,
                                   int64_t channels) {
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(height * width * channels));
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        const double u = static_cast<double>(x) / static_cast<double>(width);
        const double v = static_cast<double>(y) / static_cast<double>(height);
        const double k = static_cast<double>(c);
        const double wave = std::sin(3 * u + k) * std::cos(2 * v - k);
        pixels.push_back(static_cast<uint8_t>(127.5 + 90 * wave + 30 * u));
      }
    }
  }
  return pixels;
}

Bytes EncodeJpeg(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                 int64_t channels, const JpegOptions& options) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): the API's type
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = static_cast<int>(channels);
  info.in_color_space = channels == 1   ? JCS_GRAYSCALE
                        : channels == 3 ? JCS_RGB
                                        : JCS_CMYK;
  jpeg_set_defaults(&info);
  if (options.rgb) {
    jpeg_set_colorspace(&info, JCS_RGB);
    info.write_JFIF_header = options.jfif_marker ? TRUE : FALSE;
    info.write_Adobe_marker = options.adobe_marker ? TRUE : FALSE;
    for (int i = 0; i < 3 && !options.named_components; ++i) {
      info.comp_info[i].component_id = i + 1;
    }
  }
  jpeg_set_quality(&info, options.quality, TRUE);
  for (size_t i = 0; i < 3 && channels == 3; ++i) {
    const bool more = options.subsampled && i == 0;
    info.comp_info[i].h_samp_factor = more ? 2 : options.across[i];
    info.comp_info[i].v_samp_factor = more ? 2 : 1;
  }
  info.arith_code = options.arithmetic ? TRUE : FALSE;
  if (options.progressive) jpeg_simple_progression(&info);
  std::vector<jpeg_scan_info> scans;
  for (int i = 0; options.scan_for_each && i < channels; ++i) {
    scans.push_back({.comps_in_scan = 1,
                     .component_index = {i},
                     .Ss = 0,
                     .Se = DCTSIZE2 - 1,
                     .Ah = 0,
                     .Al = 0});
  }
  if (!scans.empty()) {
    info.scan_info = scans.data();
    info.num_scans = static_cast<int>(scans.size());
  }
  jpeg_start_compress(&info, TRUE);
  if (options.orientation != 0) {
    std::vector<uint8_t> exif = {'E', 'x', 'i', 'f', 0, 0};
    const std::vector<uint8_t> tiff =
        TiffWithOrientation(options.orientation, options.little_endian_exif);
    exif.insert(exif.end(), tiff.begin(), tiff.end());
    jpeg_write_marker(&info, JPEG_APP0 + 1, exif.data(),
                      static_cast<unsigned>(exif.size()));
  }
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(pixels.data()) +
                info.next_scanline * static_cast<size_t>(width * channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  Bytes file;
  Append(file, std::span(memory, size));
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

std::vector<size_t> MarkersOf(const Bytes& jpeg) {
  std::vector<size_t> markers;
  for (size_t i = 0; i + 1 < jpeg.size(); ++i) {
    const auto code = std::to_integer<uint8_t>(jpeg[i + 1]);
    const bool inside = code == 0x00 || (code >= 0xD0 && code <= 0xD7);
    if (jpeg[i] != std::byte{0xFF} || inside) continue;
    markers.push_back(i);
    const bool has_length = code != 0xD8 && code != 0xD9;
    if (has_length) {
      i += 1 + (std::to_integer<size_t>(jpeg[i + 2]) << 8 |
                std::to_integer<size_t>(jpeg[i + 3]));
    }
  }
  return markers;
}

bool IsRgbToLibjpeg(const Bytes& jpeg) {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(jpeg.data()),
               jpeg.size());
  jpeg_read_header(&info, TRUE);
  const bool rgb = info.jpeg_color_space == JCS_RGB;
  jpeg_destroy_decompress(&info);
  return rgb;
}

Bytes EncodePng(std::span<const uint16_t> samples, int64_t height,
                int64_t width, const PngOptions& options) {
  Bytes png = PngHeader(static_cast<uint32_t>(height),
                        static_cast<uint32_t>(width), options);
  const auto append_exif = [&](bool past_pixels) {
    if (options.orientation == 0 || options.exif_past_pixels != past_pixels) {
      return;
    }
    AppendChunk(png, "eXIf", TiffWithOrientation(options.orientation, false));
  };
  append_exif(false);
  if (options.color_type == 3) {
    std::vector<uint8_t> palette;
    const int entries =
        std::min(1 << options.bit_depth, options.palette_entries);
    for (int i = 0; i < entries; ++i) {
      palette.push_back(static_cast<uint8_t>(i));
      palette.push_back(static_cast<uint8_t>(255 - i));
      palette.push_back(static_cast<uint8_t>(i / 2));
    }
    AppendChunk(png, "PLTE", palette);
  }
  std::vector<uint8_t> raw;
  if (options.interlaced) {
    for (const Pass& pass :
         {Pass{0, 0, 8, 8}, Pass{4, 0, 8, 8}, Pass{0, 4, 4, 8},
          Pass{2, 0, 4, 4}, Pass{0, 2, 2, 4}, Pass{1, 0, 2, 2},
          Pass{0, 1, 1, 2}}) {
      AppendPass(samples, height, width, options, pass, raw);
    }
  } else {
    AppendPass(samples, height, width, options, {0, 0, 1, 1}, raw);
  }
  const std::vector<uint8_t> stored = StoredZlib(raw);
  for (std::span<const uint8_t> rest = stored; !rest.empty();) {
    const size_t part = std::min(rest.size(), options.chunk_bytes);
    AppendChunk(png, "IDAT", rest.first(part));
    rest = rest.subspan(part);
  }
  append_exif(true);
  AppendChunk(png, "IEND", {});
  return png;
}

Bytes PngClaiming(uint32_t height, uint32_t width) {
  Bytes png = PngHeader(height, width, {});
  AppendChunk(png, "IDAT", StoredZlib({}));
  AppendChunk(png, "IEND", {});
  return png;
}

Bytes JpegClaiming(uint16_t height, uint16_t width) {
  const std::vector<uint8_t> pixels(16 * 16 * 3, 128);
  Bytes file = EncodeJpeg(pixels, 16, 16, 3);
  for (size_t i = 0; i + 8 < file.size(); ++i) {
    if (file[i] != std::byte{0xFF} || file[i + 1] != std::byte{0xC0}) continue;
    file[i + 5] = static_cast<std::byte>(height >> 8);
    file[i + 6] = static_cast<std::byte>(height & 0xFF);
    file[i + 7] = static_cast<std::byte>(width >> 8);
    file[i + 8] = static_cast<std::byte>(width & 0xFF);
    return file;
  }
  std::abort();
}

}  // namespace weir::image
