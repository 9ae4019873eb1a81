// Swaps rows and columns of `batch` matrices in tiles, so that both sides are
// read and written in runs. E is the word of an element's size.
namespace weir {

struct Args {
  const E* in;  // batch x rows x columns
  E* out;       // batch x columns x rows
  uint64_t batch, rows, columns;
  uint64_t row_tiles, column_tiles;
};

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  constexpr unsigned kTile = 32;
  __shared__ E tile[kTile][kTile + 1];
  const uint64_t block = blockIdx.x;
  const uint64_t column_tile = block % a.column_tiles;
  const uint64_t row_tile = block / a.column_tiles % a.row_tiles;
  const uint64_t matrix = block / a.column_tiles / a.row_tiles;
  const E* in = a.in + matrix * a.rows * a.columns;
  E* out = a.out + matrix * a.rows * a.columns;
  const unsigned x = threadIdx.x % kTile;
  const unsigned y = threadIdx.x / kTile;
  for (unsigned dy = y; dy < kTile; dy += 8) {
    const uint64_t row = row_tile * kTile + dy;
    const uint64_t column = column_tile * kTile + x;
    if (row < a.rows && column < a.columns) {
      tile[dy][x] = in[row * a.columns + column];
    }
  }
  __syncthreads();
  for (unsigned dy = y; dy < kTile; dy += 8) {
    const uint64_t row = row_tile * kTile + x;
    const uint64_t column = column_tile * kTile + dy;
    if (row < a.rows && column < a.columns) {
      out[column * a.rows + row] = tile[x][dy];
    }
  }
}

}  // namespace weir
