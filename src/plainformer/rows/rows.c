/* Decoding is reading memory. A few rows x through a matrix W, y = x W^T + b, and one query's attention, each reading
   what it needs once and asking the memory for it ahead of time.

   Numbers are float32, bfloat16 (16 bits, the upper half of a float32), or, for W, int8 with one scale a row. Sums are
   kept in float32; those of int8 weights in int32 over blocks, against x in 13 bits with one scale a row. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "pool.h"

enum { MOST_ROWS = 8, BLOCK = 4096, STEPS = 4095, LINE = 64, AHEAD = 4096, PIECE = 1 << 17 }; /* the last three: bytes */

#define SAME(w) (w)
#define SHORT(w) ((int16_t)(w))

/* sums[r] = W's row . row r of x: eight rows of x at once (those beyond n_rows repeat the last), or one. */
#define DOT(NAME, W, X, SUM, VALUE, ONE_SUM, EIGHT_SUMS)                                                              \
    static inline void NAME(const W *w, const X *const *x, long n_rows, long n_in, float *sums) {                     \
        for (long r = 0; r < MOST_ROWS; r++) sums[r] = 0;                                                             \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            for (long i = from; i < to; i += LINE / sizeof(W)) __builtin_prefetch((const char *)(w + i) + AHEAD);     \
            const X *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];   \
            SUM s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                                       \
            if (n_rows == 1) {                                                                                        \
                ONE_SUM                                                                                               \
                for (long i = from; i < to; i++) s0 += VALUE(w[i]) * x0[i];                                           \
            } else {                                                                                                  \
                EIGHT_SUMS                                                                                            \
                for (long i = from; i < to; i++) {                                                                    \
                    SUM wi = VALUE(w[i]);                                                                             \
                    s0 += wi * x0[i]; s1 += wi * x1[i]; s2 += wi * x2[i]; s3 += wi * x3[i];                           \
                    s4 += wi * x4[i]; s5 += wi * x5[i]; s6 += wi * x6[i]; s7 += wi * x7[i];                           \
                }                                                                                                     \
            }                                                                                                         \
            sums[0] += s0; sums[1] += s1; sums[2] += s2; sums[3] += s3;                                               \
            sums[4] += s4; sums[5] += s5; sums[6] += s6; sums[7] += s7;                                               \
        }                                                                                                             \
    }

/* Sums of floats may be taken in another order only if that is said; those of integers may anyhow, and compilers know
   the processor's own products of shorts by loops of which nothing is said. */
#define ONE _Pragma("omp simd reduction(+ : s0)")
#define EIGHT _Pragma("omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7)")
DOT(dot_float32, float, float, float, SAME, ONE, EIGHT)
DOT(dot_bfloat16, bfloat16, float, float, wide, ONE, EIGHT)
DOT(dot_int8, int8_t, int16_t, int32_t, SHORT, , )

/* x as float32, in `to` unless it is so already. */
static const float *widened(const void *from, long n, int kind, float *to) {
    if (kind != BFLOAT16) return from;
    for (long i = 0; i < n; i++) to[i] = wide(((const bfloat16 *)from)[i]);
    return to;
}

/* A row of x in whole steps; gives the size of one. What is no number, or without bound, makes the step so. */
static float stepped(const float *x, long n, int16_t *to) {
    float most = 0;
    int real = 1;
    for (long i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        real &= isfinite(x[i]) != 0;
        most = size > most ? size : most;
    }
    float by = real && most > 0 ? STEPS / most : 0;
    for (long i = 0; i < n; i++) to[i] = (int16_t)lrintf(real ? x[i] * by : 0);
    return real ? most / STEPS : NAN;
}

typedef struct {
    int kind_w, kind_x;
    const char *w;
    const float *scale, *bias;
    void *y;
    long some, n_out, n_in, rows_a_piece;
    const float *x[MOST_ROWS];
    const int16_t *steps[MOST_ROWS];
    float step[MOST_ROWS];
} Product;

static long size_of(int kind) { return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1; }

static void product_piece(const void *job, long piece) {
    const Product *p = job;
    long from = piece * p->rows_a_piece, to = from + p->rows_a_piece < p->n_out ? from + p->rows_a_piece : p->n_out;
    for (long o = from; o < to; o++) {
        const void *w = p->w + o * p->n_in * size_of(p->kind_w);
        float sums[MOST_ROWS];
        if (p->kind_w == FLOAT32) dot_float32(w, p->x, p->some, p->n_in, sums);
        else if (p->kind_w == BFLOAT16) dot_bfloat16(w, p->x, p->some, p->n_in, sums);
        else dot_int8(w, p->steps, p->some, p->n_in, sums);
        for (long r = 0; r < p->some; r++) {
            float scaled = sums[r] * p->step[r] * (p->scale ? p->scale[o] : 1);
            put(p->y, r * p->n_out + o, scaled + (p->bias ? p->bias[o] : 0), p->kind_x);
        }
    }
}

/* y (n_rows, n_out) = x (n_rows, n_in) W^T + bias; x, bias and y of kind_x. 0 when done, 1 when memory lacks. */
int rows(int kind_w, int kind_x, const void *w, const void *x, const void *bias, const float *scale, void *y,
         long n_rows, long n_out, long n_in, int n_threads) {
    size_t n_x = (size_t)(n_rows * n_in);
    float *room = malloc((n_x + (size_t)n_out) * sizeof(float) + n_x * sizeof(int16_t));
    if (!room) return 1;
    const float *wide_x = widened(x, n_rows * n_in, kind_x, room);
    int16_t *steps = (int16_t *)(room + n_x + n_out);
    long row = n_in * size_of(kind_w);
    Product p = {.kind_w = kind_w, .kind_x = kind_x, .w = w, .scale = scale, .n_out = n_out, .n_in = n_in};
    p.bias = bias ? widened(bias, n_out, kind_x, room + n_x) : NULL;
    p.rows_a_piece = row < PIECE ? PIECE / row : 1;
    for (long first = 0; first < n_rows; first += MOST_ROWS) {
        p.some = n_rows - first < MOST_ROWS ? n_rows - first : MOST_ROWS;
        p.y = (char *)y + first * n_out * size_of(kind_x);
        for (long r = 0; r < MOST_ROWS; r++) {
            long at = (first + (r < p.some ? r : p.some - 1)) * n_in;
            p.x[r] = wide_x + at;
            p.steps[r] = steps + at;
            p.step[r] = kind_w == INT8 && r < p.some ? stepped(p.x[r], n_in, steps + at) : 1;
        }
        share(product_piece, &p, (n_out + p.rows_a_piece - 1) / p.rows_a_piece, n_threads);
    }
    free(room);
    return 0;
}

/* sum += weight * row, and query . row, of a row of n numbers */
static inline void add_row(float *sum, float weight, const void *row, long n, int kind) {
    if (kind == BFLOAT16) {
#pragma omp simd
        for (long j = 0; j < n; j++) sum[j] += weight * wide(((const bfloat16 *)row)[j]);
    } else {
#pragma omp simd
        for (long j = 0; j < n; j++) sum[j] += weight * ((const float *)row)[j];
    }
}

static inline float dot_row(const float *query, const void *row, long n, int kind) {
    float dot = 0;
    if (kind == BFLOAT16) {
#pragma omp simd reduction(+ : dot)
        for (long i = 0; i < n; i++) dot += query[i] * wide(((const bfloat16 *)row)[i]);
    } else {
#pragma omp simd reduction(+ : dot)
        for (long i = 0; i < n; i++) dot += query[i] * ((const float *)row)[i];
    }
    return dot;
}

typedef struct {
    int kind;
    const char *q, *keys, *values;
    const uint8_t *allowed;
    void *out;
    float *room, scale;
    long H, G, S, K, J, keys_b, keys_g, values_b, values_g, heads_a_piece, n_heads;
} Attention;

static void head(const Attention *a, long bh) {
    long b = bh / a->H, g = bh % a->H / (a->H / a->G), size = size_of(a->kind);
    const char *key = a->keys + (b * a->keys_b + g * a->keys_g) * size;
    const char *value = a->values + (b * a->values_b + g * a->values_g) * size;
    float *score = a->room + bh * (a->S + a->K + a->J), *room = score + a->S, *sum = room + a->K;
    const float *query = widened(a->q + bh * a->K * size, a->K, a->kind, room);
    float most = -INFINITY, total = 0;
    for (long s = 0; s < a->S; s++) {
        int seen = !a->allowed || a->allowed[b * a->S + s];
        score[s] = seen ? dot_row(query, key + s * a->K * size, a->K, a->kind) * a->scale : -INFINITY;
        most = score[s] > most || isnan(score[s]) ? score[s] : most;
    }
    memset(sum, 0, (size_t)a->J * sizeof(float));
    for (long s = 0; s < a->S; s++) {
        if (score[s] == -INFINITY) continue; /* not seen, or infinitely far below what is */
        float weight = expf(score[s] - most);
        total += weight;
        add_row(sum, weight, value + s * a->J * size, a->J, a->kind);
    }
    for (long j = 0; j < a->J; j++) put(a->out, bh * a->J + j, total == 0 ? 0 : sum[j] / total, a->kind);
}

static void attention_piece(const void *job, long piece) {
    const Attention *a = job;
    long from = piece * a->heads_a_piece, to = from + a->heads_a_piece;
    for (long bh = from; bh < (to < a->n_heads ? to : a->n_heads); bh++) head(a, bh);
}

/* What one query a head takes: out (B, H, J) = softmax(q . keys * scale) values. q (B, H, K); keys (B, G, S, K) and
   values (B, G, S, J) with the given steps from row to row of B and G; allowed (B, S), or none. H / G heads share keys.
   A query that may see nothing takes 0. 0 when done, 1 when memory lacks. */
int attend(int kind, const void *q, const void *keys, const void *values, const uint8_t *allowed, void *out, long B,
           long H, long G, long S, long K, long J, long keys_b, long keys_g, long values_b, long values_g, float scale,
           int n_threads) {
    float *room = malloc((size_t)(B * H * (S + K + J)) * sizeof(float));
    if (!room) return 1;
    long bytes = S * (K + J) * size_of(kind), heads_a_piece = bytes < PIECE ? PIECE / bytes : 1;
    Attention a = {kind,   q,      keys,   values,   allowed,  out,   room,          scale, H, G, S, K, J,
                   keys_b, keys_g, values_b, values_g, heads_a_piece, B * H};
    share(attention_piece, &a, (a.n_heads + a.heads_a_piece - 1) / a.heads_a_piece, n_threads);
    free(room);
    return 0;
}
