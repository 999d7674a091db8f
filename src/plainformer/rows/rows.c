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

#include "curves.h"
#include "dots.h"

enum { PIECE = 1 << 18 }; /* bytes that a thread reads before it asks for more work */

static inline long size_of(int kind) { return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1; }

static inline float get(const void *x, long at, int kind) {
    return kind == BFLOAT16 ? wide(((const bfloat16 *)x)[at]) : ((const float *)x)[at];
}

/* x as float32, in `to` unless it is so already. */
static const float *widened(const void *from, long n, int kind, float *to) {
    if (kind != BFLOAT16) return from;
    for (long i = 0; i < n; i++) to[i] = wide(((const bfloat16 *)from)[i]);
    return to;
}

/* A row of x in whole steps; gives the size of one. What is no number, or without bound, makes the step so. */
static float stepped(const float *x, long n, int16_t *to) {
    uint32_t most = 0; /* sizes of float32 stand in the order of their bits, and compilers compare bits several at once */
    for (long i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float size = of_bits(most);
    if (most >= 0x7f800000) {
        memset(to, 0, (size_t)n * sizeof *to);
        return NAN;
    }
    float by = size > 1e-30f ? STEPS / size : 0;
    for (long i = 0; i < n; i++) {
        float shifted = x[i] * by + 12582912.f; /* 1.5 * 2^23: what is added is rounded to a whole number */
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        to[i] = (int16_t)(bits - 0x4b400000u);
    }
    return size / STEPS;
}

/* x as most dots want it: against bfloat16 its even places, then its odd ones, in `to`. */
static const float *spread(const float *x, long n, int kind_w, float *to) {
    if (kind_w != BFLOAT16) return x;
    for (long i = 0; i < n_even(n); i++) to[i] = x[2 * i];
    for (long i = 0; i < n / 2; i++) to[n_even(n) + i] = x[2 * i + 1];
    return to;
}

/* Up to eight rows of x as the dots want them. */
typedef struct {
    long some, n_in;
    const float *x[MOST_ROWS];
    const int16_t *steps[MOST_ROWS];
    float step[MOST_ROWS];
} Rows;

/* to: room for n_in floats a row of x; steps: for as many shorts. */
static void prepare(Rows *rows, const float *x, long some, long n_in, int kind_w, float *to, int16_t *steps) {
    rows->some = some;
    rows->n_in = n_in;
    if (kind_w == BFLOAT16 && (TILES || some == 1)) {
        for (long r = 0; r < some; r++) spread(x + r * n_in, n_in, kind_w, to + r * n_in);
        x = to;
    }
    for (long r = 0; r < MOST_ROWS; r++) { /* beyond the last it stands again */
        long at = (r < some ? r : some - 1) * n_in;
        rows->x[r] = x + at;
        rows->steps[r] = steps + at;
        rows->step[r] = kind_w == INT8 && r < some ? stepped(x + at, n_in, steps + at) : 1;
    }
}

/* One matrix, and where its products with these rows go, which come in groups of up to eight. */
typedef struct {
    const Rows *rows;
    long n_groups;
    int kind_w, kind_bias, kind_y;
    const char *w;
    const void *bias;
    const float *scale;
    void *y;
    long n_out, rows_a_piece;
} Product;

/* How many of n things of so many bytes make a piece: each thread has the same number of them, for while one is at a
   piece left over the others wait. */
static long a_piece(long n, long bytes, int n_threads) {
    long pieces = (n * bytes + PIECE - 1) / PIECE;
    if (n_threads > 1 && pieces > 1) pieces = (pieces + n_threads - 1) / n_threads * n_threads;
    return pieces > 1 ? (n + pieces - 1) / pieces : n;
}

static long pieces_of(Product *p, int n_threads) {
    long rows = a_piece(p->n_out, p->rows->n_in * size_of(p->kind_w), n_threads);
    p->rows_a_piece = (rows + FOUR - 1) / FOUR * FOUR;
    return (p->n_out + p->rows_a_piece - 1) / p->rows_a_piece;
}

static inline void give(const Product *p, const Rows *rows, long r, long o, float sum) {
    float y = sum * rows->step[r] * (p->scale ? p->scale[o] : 1);
    put(p->y, ((rows - p->rows) * MOST_ROWS + r) * p->n_out + o, y + (p->bias ? get(p->bias, o, p->kind_bias) : 0), p->kind_y);
}

/* Several rows of x with W's next rows, from o on; gives how many of W. */
static long several(const Product *p, const Rows *rows, const void *w, long o) {
    float sums[FOUR * FOUR];
#if TILES
    ask_ahead(w, FOUR * rows->n_in * size_of(p->kind_w));
    for (long r = 0; r < rows->some; r += FOUR) {
        if (p->kind_w == FLOAT32) tile_float32(w, rows->x + r, rows->n_in, sums);
        else if (p->kind_w == BFLOAT16) tile_bfloat16(w, rows->x + r, rows->n_in, sums);
        else tile_int8(w, rows->steps + r, rows->n_in, sums);
        for (long k = 0; k < FOUR * FOUR; k++)
            if (r + k % FOUR < rows->some) give(p, rows, r + k % FOUR, o + k / FOUR, sums[k]);
    }
    return FOUR;
#else
    if (p->kind_w == FLOAT32) eight_float32(w, rows->x, rows->n_in, sums);
    else if (p->kind_w == BFLOAT16) eight_bfloat16(w, rows->x, rows->n_in, sums);
    else eight_int8(w, rows->steps, rows->n_in, sums);
    for (long r = 0; r < rows->some; r++) give(p, rows, r, o, sums[r]);
    return 1;
#endif
}

static void rows_of_piece(const Product *p, const Rows *rows, long from, long to) {
    float sums[FOUR];
    for (long o = from; o < to;) {
        const void *w = p->w + o * rows->n_in * size_of(p->kind_w);
        if (rows->some > 1 && !(TILES && o + FOUR > to)) {
            o += several(p, rows, w, o);
            continue;
        }
        long n = o + FOUR <= to ? FOUR : 1;
        for (long r = 0; r < rows->some; r++) {
            if (p->kind_w == FLOAT32) (n == FOUR ? four_float32 : one_float32)(w, rows->x[r], rows->n_in, sums);
            else if (p->kind_w == BFLOAT16) (n == FOUR ? four_bfloat16 : one_bfloat16)(w, rows->x[r], rows->n_in, sums);
            else (n == FOUR ? four_int8 : one_int8)(w, rows->steps[r], rows->n_in, sums);
            for (long j = 0; j < n; j++) give(p, rows, r, o + j, sums[j]);
        }
        o += n;
    }
}

static void product_piece(const Product *p, long piece) { /* read from memory once: it is near while groups need it */
    long from = piece * p->rows_a_piece, to = from + p->rows_a_piece < p->n_out ? from + p->rows_a_piece : p->n_out;
    for (long g = 0; g < p->n_groups; g++) rows_of_piece(p, p->rows + g, from, to);
}

/* Several matrices that read the same rows, as one piece of work after another. */
enum { MOST_TOGETHER = 4 };

typedef struct {
    Product one[MOST_TOGETHER];
    long n, until[MOST_TOGETHER]; /* the piece after the last one of each */
} Products;

static void piece_of_several(const void *job, long piece) {
    const Products *all = job;
    long i = 0, before = 0;
    while (piece >= all->until[i]) before = all->until[i++];
    product_piece(&all->one[i], piece - before);
}

static void multiply(Products *all, int n_threads) {
    long n = 0;
    for (long i = 0; i < all->n; i++) all->until[i] = n += pieces_of(&all->one[i], n_threads);
    share(piece_of_several, all, n, n_threads);
}

/* y (n_rows, n_out) = x (n_rows, n_in) W^T + bias; x, bias and y of kind_x. 0 when done, 1 when memory lacks. */
int rows(int kind_w, int kind_x, const void *w, const void *x, const void *bias, const float *scale, void *y,
         long n_rows, long n_out, long n_in, int n_threads) {
    size_t n_x = (size_t)(n_rows * n_in), n_groups = (size_t)((n_rows + MOST_ROWS - 1) / MOST_ROWS);
    float *room = malloc(2 * n_x * sizeof(float) + n_x * sizeof(int16_t));
    Rows *groups = malloc((n_groups + 1) * sizeof *groups);
    if (room && groups) {
        const float *wide_x = widened(x, n_rows * n_in, kind_x, room);
        int16_t *steps = (int16_t *)(room + 2 * n_x);
        for (long first = 0; first < n_rows; first += MOST_ROWS) {
            long n = n_rows - first < MOST_ROWS ? n_rows - first : MOST_ROWS, at = first * n_in;
            prepare(groups + first / MOST_ROWS, wide_x + at, n, n_in, kind_w, room + n_x + at, steps + at);
        }
        Products all = {.n = 1, .one = {{groups, (long)n_groups, kind_w, kind_x, kind_x, w, bias, scale, y, n_out, 0}}};
        multiply(&all, n_threads);
    }
    int lacks = !room || !groups;
    free(room);
    free(groups);
    return lacks;
}

/* sum += weight * row, of a row of n numbers; and of four rows one after another */
static inline void add_row(float *restrict sum, float weight, const void *row, long n, int kind) {
    if (kind == BFLOAT16) {
#pragma omp simd
        for (long j = 0; j < n; j++) sum[j] += weight * wide(((const bfloat16 *)row)[j]);
    } else {
#pragma omp simd
        for (long j = 0; j < n; j++) sum[j] += weight * ((const float *)row)[j];
    }
}

#define ADD_FOUR(W, VALUE)                                                                                            \
    const W *v0 = rows, *v1 = v0 + n, *v2 = v1 + n, *v3 = v2 + n;                                                     \
    ask_ahead(rows, FOUR * n * (long)sizeof(W));                                                                      \
    float a = weight[0], b = weight[1], c = weight[2], d = weight[3];                                                 \
    _Pragma("omp simd") for (long j = 0; j < n; j++)                                                                  \
        sum[j] += (a * VALUE(v0[j]) + b * VALUE(v1[j])) + (c * VALUE(v2[j]) + d * VALUE(v3[j]));

static inline void add_four_rows(float *restrict sum, const float *weight, const void *rows, long n, int kind) {
    if (kind == BFLOAT16) {
        ADD_FOUR(bfloat16, wide)
    } else {
        ADD_FOUR(float, SAME)
    }
}

/* score[s] = scale * query . key s, of S keys one after another. query: as `spread` leaves it. */
static void score_keys(const float *query, const char *keys, long S, long K, int kind, float scale, float *score) {
    long size = size_of(kind), s = 0;
    for (; s + FOUR <= S; s += FOUR)
        if (kind == BFLOAT16) four_bfloat16((const bfloat16 *)(keys + s * K * size), query, K, score + s);
        else four_float32((const float *)(keys + s * K * size), query, K, score + s);
    for (; s < S; s++)
        if (kind == BFLOAT16) one_bfloat16((const bfloat16 *)(keys + s * K * size), query, K, score + s);
        else one_float32((const float *)(keys + s * K * size), query, K, score + s);
    for (s = 0; s < S; s++) score[s] *= scale;
}

/* Queries, one a head, q (B, H, K); keys (B, G, S, K) and values (B, G, S, J) with the given steps from row to row of B
   and G. H / G heads share keys. Which slots a row's query may see: all S that `allowed` (B, S) does not rule out; or,
   where positions are given, those that hold one of the newest `window` tokens up to the row's own position, token i in
   slot i modulo `ring`. */
typedef struct {
    int kind, kind_out;
    const float *q;
    const char *keys, *values;
    const uint8_t *allowed;
    const long *positions;
    void *out;
    float *room, scale, softcap; /* softcap: 0 for none */
    long B, H, G, S, K, J, keys_b, keys_g, values_b, values_g, ring, window, heads_a_piece;
} Attention;

static inline int seen(const Attention *a, long b, long s) {
    if (a->allowed) return a->allowed[b * a->S + s];
    return !a->positions || (a->positions[b] - s + a->ring) % a->ring < a->window;
}

static void head(const Attention *a, long bh) {
    long b = bh / a->H, g = bh % a->H / (a->H / a->G), size = size_of(a->kind), n = a->S;
    if (a->positions) n = a->positions[b] + 1 < a->ring ? a->positions[b] + 1 : a->ring;
    const char *key = a->keys + (b * a->keys_b + g * a->keys_g) * size;
    const char *value = a->values + (b * a->values_b + g * a->values_g) * size;
    float *score = a->room + bh * (a->S + a->K + a->J), *sum = score + a->S;
    int all = !a->allowed && (!a->positions || a->window >= a->ring);
    float most = -INFINITY, total = 0;
    score_keys(spread(a->q + bh * a->K, a->K, a->kind, sum + a->J), key, n, a->K, a->kind, a->scale, score);
    for (long s = 0; s < n; s++) {
        if (!all && !seen(a, b, s)) score[s] = -INFINITY;
        else if (a->softcap != 0) score[s] = a->softcap * tanhf(score[s] / a->softcap);
    }
#pragma omp simd reduction(max : most)
    for (long s = 0; s < n; s++) most = score[s] > most ? score[s] : most;
#pragma omp simd reduction(+ : total)
    for (long s = 0; s < n; s++) {
        float weight = score[s] == -INFINITY ? 0 : exp_of(score[s] - most); /* not seen, or infinitely far below */
        score[s] = weight;
        total += weight;
    }
    memset(sum, 0, (size_t)a->J * sizeof(float));
    long row = a->J * size, s = 0;
    for (; all && s + FOUR <= n; s += FOUR) add_four_rows(sum, score + s, value + s * row, a->J, a->kind);
    for (; s < n; s++) /* what is not seen may be no number */
        if (score[s] != 0) add_row(sum, score[s], value + s * row, a->J, a->kind);
    for (long j = 0; j < a->J; j++) put(a->out, bh * a->J + j, total == 0 ? 0 : sum[j] / total, a->kind_out);
}

static void attention_piece(const void *job, long piece) {
    const Attention *a = job;
    long from = piece * a->heads_a_piece, to = from + a->heads_a_piece, n = a->B * a->H;
    for (long bh = from; bh < (to < n ? to : n); bh++) head(a, bh);
}

/* room: for B * H * (S + K + J) floats. */
static void look(Attention *a, int n_threads) {
    a->heads_a_piece = a_piece(a->B * a->H, a->S * (a->K + a->J) * size_of(a->kind), n_threads);
    share(attention_piece, a, (a->B * a->H + a->heads_a_piece - 1) / a->heads_a_piece, n_threads);
}

/* out (B, H, J) = softmax(q . keys * scale) values, as `Attention` has them; a query that may see nothing takes 0. q and
   out are of the keys' kind. 0 when done, 1 when memory lacks. */
int attend(int kind, const void *q, const void *keys, const void *values, const uint8_t *allowed, void *out, long B,
           long H, long G, long S, long K, long J, long keys_b, long keys_g, long values_b, long values_g, float scale,
           int n_threads) {
    float *room = malloc((size_t)(B * H * (S + J + 2 * K)) * sizeof(float));
    if (!room) return 1;
    const float *query = widened(q, B * H * K, kind, room + B * H * (S + J + K));
    Attention a = {.kind = kind, .kind_out = kind, .q = query, .keys = keys, .values = values, .allowed = allowed};
    a.out = out, a.room = room, a.scale = scale;
    a.B = B, a.H = H, a.G = G, a.S = S, a.K = K, a.J = J;
    a.keys_b = keys_b, a.keys_g = keys_g, a.values_b = values_b, a.values_g = values_g;
    look(&a, n_threads);
    free(room);
    return 0;
}

#include "stack.h"
