// Matrix products: C = A B, or with ADDEND 1 C = alpha A B + beta D, rounded
// once. S is the element type, A the type accumulated in (unsigned for
// integers, which wrap).
namespace weir {

struct Args {
  const S* a;
  const S* b;
  S* c;
  uint64_t m, n, k;
  uint64_t blocks;  // tiles of all products
  uint64_t row_tiles, column_tiles;
  uint64_t batch_rank;
  uint64_t batch_dims[8];
  int64_t a_strides[8];
  int64_t b_strides[8];
  uint64_t transpose_a, transpose_b;
  double alpha, beta;       // floating types alone
  const S* d;               // null: nothing is added
  int64_t d_row, d_column;  // strides; the batch is one
};

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args args) {
  constexpr unsigned kTile = 16;
  __shared__ A tile_a[kTile][kTile + 1];
  __shared__ A tile_b[kTile][kTile + 1];
  const unsigned x = threadIdx.x % kTile;
  const unsigned y = threadIdx.x / kTile;
  for (uint64_t block = blockIdx.x; block < args.blocks; block += gridDim.x) {
    const uint64_t column_tile = block % args.column_tiles;
    const uint64_t row_tile = block / args.column_tiles % args.row_tiles;
    const uint64_t batch = block / args.column_tiles / args.row_tiles;
    const S* a = args.a;
    const S* b = args.b;
    uint64_t rest = batch;
    for (uint64_t d = args.batch_rank; d-- > 0;) {
      const uint64_t q = rest / args.batch_dims[d];
      const int64_t at = static_cast<int64_t>(rest - q * args.batch_dims[d]);
      a += at * args.a_strides[d];
      b += at * args.b_strides[d];
      rest = q;
    }
    const uint64_t row = row_tile * kTile + y;
    const uint64_t column = column_tile * kTile + x;
    A sum = 0;
    for (uint64_t k0 = 0; k0 < args.k; k0 += kTile) {
      const uint64_t ka = k0 + x;
      const uint64_t kb = k0 + y;
      tile_a[y][x] = A(0);
      tile_b[y][x] = A(0);
      if (row < args.m && ka < args.k) {
        tile_a[y][x] = static_cast<A>(Load(
            args.transpose_a ? a[ka * args.m + row] : a[row * args.k + ka]));
      }
      if (column < args.n && kb < args.k) {
        tile_b[y][x] =
            static_cast<A>(Load(args.transpose_b ? b[column * args.k + kb]
                                                 : b[kb * args.n + column]));
      }
      __syncthreads();
      for (unsigned k = 0; k < kTile; ++k) sum += tile_a[y][k] * tile_b[k][x];
      __syncthreads();
    }
    if (row < args.m && column < args.n) {
#if ADDEND
      sum *= static_cast<A>(args.alpha);
      if (args.d != nullptr) {
        sum += static_cast<A>(args.beta) *
               static_cast<A>(
                   Load(args.d[static_cast<int64_t>(row) * args.d_row +
                               static_cast<int64_t>(column) * args.d_column]));
      }
#endif
      args.c[(batch * args.m + row) * args.n + column] =
          Store<S>(static_cast<Compute<S>>(sum));
    }
  }
}

}  // namespace weir
