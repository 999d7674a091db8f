/* Sums of W's numbers times x's: what every product is made of. A processor adds and multiplies several at once, but
   waits for each sum before it can add to it again: so four rows of W are read side by side for one x, or one row of W
   for eight x. W is of float32, bfloat16 or int8; x of float32, or against int8 of steps in 13 bits. */

enum { MOST_ROWS = 8, FOUR = 4, BLOCK = 4096, STEPS = 4095, LINE = 64, NEAR = 2048, FAR = 16384 }; /* the last three: bytes */

#define SAME(w) (w)
#define SHORT(w) ((int16_t)(w))

/* Sums of floats may be taken in another order only if that is said; those of integers may anyhow, and compilers know
   the processor's own products of shorts by loops of which nothing is said. */
#define ONE_SUM _Pragma("omp simd reduction(+ : s0)")
#define TWO_SUMS _Pragma("omp simd reduction(+ : s0, s1)")
#define FOUR_SUMS _Pragma("omp simd reduction(+ : s0, s1, s2, s3)")
#define EIGHT_SUMS _Pragma("omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7)")
#define SIXTEEN_SUMS                                                                                                  \
    _Pragma("omp simd reduction(+ : s00, s01, s02, s03, s10, s11, s12, s13, s20, s21, s22, s23, s30, s31, s32, s33)")
#define NOTHING

/* Memory is asked before its numbers are wanted, twice: from far to come halfway, then to come near. */
static inline void ask_ahead(const void *w, long n_bytes) {
    for (long at = 0; at < n_bytes; at += LINE) {
        __builtin_prefetch((const char *)w + at + NEAR);
        __builtin_prefetch((const char *)w + at + FAR, 0, 2);
    }
}

/* sums[j] = W's row j . x, of four rows of W one after another; and of one. */
#define FOUR_OR_ONE(NAME, W, X, SUM, VALUE, ALL_SUMS, SUM_OF_ONE)                                                     \
    static void four_##NAME(const W *w, const X *x, long n_in, float *sums) {                                         \
        ask_ahead(w, FOUR * n_in * (long)sizeof(W));                                                                  \
        sums[0] = sums[1] = sums[2] = sums[3] = 0;                                                                    \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            const W *w0 = w, *w1 = w + n_in, *w2 = w1 + n_in, *w3 = w2 + n_in;                                        \
            SUM s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                                       \
            ALL_SUMS                                                                                                  \
            for (long i = from; i < to; i++) {                                                                        \
                X xi = x[i];                                                                                          \
                s0 += VALUE(w0[i]) * xi; s1 += VALUE(w1[i]) * xi; s2 += VALUE(w2[i]) * xi; s3 += VALUE(w3[i]) * xi;   \
            }                                                                                                         \
            sums[0] += s0; sums[1] += s1; sums[2] += s2; sums[3] += s3;                                               \
        }                                                                                                             \
    }                                                                                                                 \
    static void one_##NAME(const W *w, const X *x, long n_in, float *sums) {                                          \
        ask_ahead(w, n_in * (long)sizeof(W));                                                                         \
        sums[0] = 0;                                                                                                  \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            SUM s0 = 0;                                                                                               \
            SUM_OF_ONE                                                                                                \
            for (long i = from; i < to; i++) s0 += VALUE(w[i]) * x[i];                                                \
            sums[0] += s0;                                                                                            \
        }                                                                                                             \
    }

FOUR_OR_ONE(float32, float, float, float, SAME, FOUR_SUMS, ONE_SUM)
FOUR_OR_ONE(int8, int8_t, int16_t, int32_t, SHORT, NOTHING, NOTHING)

/* bfloat16 two at a time: of a word each half becomes a float32 by a shift or a mask, which is less than to pull them
   apart. x: its numbers at even places, then those at odd ones. */
static inline uint32_t word_at(const bfloat16 *w, long pair) {
    uint32_t word;
    memcpy(&word, w + 2 * pair, sizeof word);
    return word;
}

static inline float of_bits(uint32_t bits) {
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

enum { LOWER_FIRST = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ };

static inline float even_of(uint32_t word) { return of_bits(LOWER_FIRST ? word << 16 : word & 0xffff0000); }
static inline float odd_of(uint32_t word) { return of_bits(LOWER_FIRST ? word & 0xffff0000 : word << 16); }

static inline long n_even(long n) { return n - n / 2; }

static void four_bfloat16(const bfloat16 *w, const float *x, long n_in, float *sums) {
    ask_ahead(w, FOUR * n_in * (long)sizeof *w);
    const bfloat16 *w0 = w, *w1 = w + n_in, *w2 = w1 + n_in, *w3 = w2 + n_in;
    const float *odd = x + n_even(n_in);
    float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    FOUR_SUMS
    for (long i = 0; i < n_in / 2; i++) {
        uint32_t a = word_at(w0, i), b = word_at(w1, i), c = word_at(w2, i), d = word_at(w3, i);
        float xi = x[i], xj = odd[i];
        s0 += even_of(a) * xi; s1 += even_of(b) * xi; s2 += even_of(c) * xi; s3 += even_of(d) * xi;
        s0 += odd_of(a) * xj; s1 += odd_of(b) * xj; s2 += odd_of(c) * xj; s3 += odd_of(d) * xj;
    }
    if (n_in % 2) {
        float xi = x[n_in / 2];
        s0 += wide(w0[n_in - 1]) * xi; s1 += wide(w1[n_in - 1]) * xi;
        s2 += wide(w2[n_in - 1]) * xi; s3 += wide(w3[n_in - 1]) * xi;
    }
    sums[0] = s0; sums[1] = s1; sums[2] = s2; sums[3] = s3;
}

static void one_bfloat16(const bfloat16 *w, const float *x, long n_in, float *sums) {
    ask_ahead(w, n_in * (long)sizeof *w);
    const float *odd = x + n_even(n_in);
    float s0 = 0, s1 = 0;
    TWO_SUMS
    for (long i = 0; i < n_in / 2; i++) {
        uint32_t word = word_at(w, i);
        s0 += even_of(word) * x[i];
        s1 += odd_of(word) * odd[i];
    }
    sums[0] = s0 + s1 + (n_in % 2 ? wide(w[n_in - 1]) * x[n_in / 2] : 0);
}

/* Several rows of x. Where a processor has room for sixteen sums: four rows of W by four of x, sums[4 j + r] = W's row j
   . row r of x, so that what is read of x is used four times. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define TILES 1

#define ADD_TILE(a, b, c, d, e, f, g, h)                                                                              \
    s00 += (a) * (e); s01 += (a) * (f); s02 += (a) * (g); s03 += (a) * (h);                                           \
    s10 += (b) * (e); s11 += (b) * (f); s12 += (b) * (g); s13 += (b) * (h);                                           \
    s20 += (c) * (e); s21 += (c) * (f); s22 += (c) * (g); s23 += (c) * (h);                                           \
    s30 += (d) * (e); s31 += (d) * (f); s32 += (d) * (g); s33 += (d) * (h);

#define SUMS_OF_TILE(SUM)                                                                                             \
    SUM s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;                                       \
    SUM s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;

#define GIVE_TILE                                                                                                     \
    sums[0] += s00; sums[1] += s01; sums[2] += s02; sums[3] += s03;                                                   \
    sums[4] += s10; sums[5] += s11; sums[6] += s12; sums[7] += s13;                                                   \
    sums[8] += s20; sums[9] += s21; sums[10] += s22; sums[11] += s23;                                                 \
    sums[12] += s30; sums[13] += s31; sums[14] += s32; sums[15] += s33;

#define TILE(NAME, W, X, SUM, VALUE, ALL_SUMS)                                                                        \
    static void tile_##NAME(const W *w, const X *const *x, long n_in, float *sums) {                                  \
        const W *w0 = w, *w1 = w + n_in, *w2 = w1 + n_in, *w3 = w2 + n_in;                                            \
        const X *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];                                                       \
        for (long k = 0; k < FOUR * FOUR; k++) sums[k] = 0;                                                           \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            SUMS_OF_TILE(SUM)                                                                                         \
            ALL_SUMS                                                                                                  \
            for (long i = from; i < to; i++) {                                                                        \
                SUM a = VALUE(w0[i]), b = VALUE(w1[i]), c = VALUE(w2[i]), d = VALUE(w3[i]);                           \
                ADD_TILE(a, b, c, d, x0[i], x1[i], x2[i], x3[i])                                                      \
            }                                                                                                         \
            GIVE_TILE                                                                                                 \
        }                                                                                                             \
    }

TILE(float32, float, float, float, SAME, SIXTEEN_SUMS)
TILE(int8, int8_t, int16_t, int32_t, SHORT, NOTHING)

static void tile_bfloat16(const bfloat16 *w, const float *const *x, long n_in, float *sums) {
    const bfloat16 *w0 = w, *w1 = w + n_in, *w2 = w1 + n_in, *w3 = w2 + n_in;
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    for (long k = 0; k < FOUR * FOUR; k++) sums[k] = 0;
    SUMS_OF_TILE(float)
    SIXTEEN_SUMS
    for (long i = 0; i < n_in / 2; i++) {
        uint32_t a = word_at(w0, i), b = word_at(w1, i), c = word_at(w2, i), d = word_at(w3, i);
        long j = i + n_even(n_in);
        ADD_TILE(even_of(a), even_of(b), even_of(c), even_of(d), x0[i], x1[i], x2[i], x3[i])
        ADD_TILE(odd_of(a), odd_of(b), odd_of(c), odd_of(d), x0[j], x1[j], x2[j], x3[j])
    }
    if (n_in % 2) {
        long i = n_in - 1, j = n_in / 2;
        ADD_TILE(wide(w0[i]), wide(w1[i]), wide(w2[i]), wide(w3[i]), x0[j], x1[j], x2[j], x3[j])
    }
    GIVE_TILE
}

#else /* one row of W by eight of x: their places one after another, bfloat16 too */
#define TILES 0

/* sums[r] = W's row . row r of x */
#define EIGHT_ROWS(NAME, W, X, SUM, VALUE, ALL_SUMS)                                                                  \
    static void NAME(const W *w, const X *const *x, long n_in, float *sums) {                                         \
        for (long r = 0; r < MOST_ROWS; r++) sums[r] = 0;                                                             \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            ask_ahead(w + from, (to - from) * (long)sizeof(W));                                                       \
            const X *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];   \
            SUM s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                                       \
            ALL_SUMS                                                                                                  \
            for (long i = from; i < to; i++) {                                                                        \
                SUM wi = VALUE(w[i]);                                                                                 \
                s0 += wi * x0[i]; s1 += wi * x1[i]; s2 += wi * x2[i]; s3 += wi * x3[i];                               \
                s4 += wi * x4[i]; s5 += wi * x5[i]; s6 += wi * x6[i]; s7 += wi * x7[i];                               \
            }                                                                                                         \
            sums[0] += s0; sums[1] += s1; sums[2] += s2; sums[3] += s3;                                               \
            sums[4] += s4; sums[5] += s5; sums[6] += s6; sums[7] += s7;                                               \
        }                                                                                                             \
    }

EIGHT_ROWS(eight_float32, float, float, float, SAME, EIGHT_SUMS)
EIGHT_ROWS(eight_bfloat16, bfloat16, float, float, wide, EIGHT_SUMS)
EIGHT_ROWS(eight_int8, int8_t, int16_t, int32_t, SHORT, NOTHING)

#endif
