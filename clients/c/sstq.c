/* The encoder. Sections: parameters, public randomness, transform, rows of a frame, Kashin representation, encoding,
 * surveys. */
#include "sstq.h"

#include <float.h>
#include <math.h>
#include <string.h>

#if !defined(SSTQ_NO_SYSTEM_RANDOM) && (defined(__unix__) || defined(__APPLE__))
#include <stdio.h>
#define SSTQ_HAS_URANDOM
#if defined(__linux__)
#include <sys/random.h>
#endif
#endif

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "sstq needs IEEE 754 arithmetic in the precision of its types: no -ffast-math; on 32-bit x86 -msse2 -mfpmath=sse"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define TOTAL ((uint64_t)1 << 62) /* the sum of a draw's weights */
#define LARGEST_FRAME ((uint32_t)1 << 30)
#define MOST_SETS ((uint32_t)1 << 25) /* of w categories */
#define HISTOGRAM 2048 /* counters of the selection */
#define MOST_WORDS 4   /* that a message takes, but for a survey's */
#define MOST_QUESTIONS 1000
#define MOST_BITS 62 /* of a survey's message */
#define LONGEST_STEP 16.0
#define LEAST_REDUCTION 1e-30

/* ---------------------------------------------------------------- parameters */

const char *sstq_error_name(sstq_error error)
{
    static const char *const names[] = {
        "SSTQ_OK",         "SSTQ_BAD_PARAMETERS",   "SSTQ_BAD_ARGUMENT",
        "SSTQ_BAD_LENGTH", "SSTQ_BUFFER_TOO_SMALL", "SSTQ_NO_RANDOMNESS",
    };
    return (unsigned)error < sizeof names / sizeof *names ? names[error] : "SSTQ_UNKNOWN_ERROR";
}

/* The bits of the numbers below `limit`: those of a field, and the logarithm of a power of two. */
static uint32_t bits_below(uint64_t limit)
{
    uint32_t bits = 0;
    while (limit > (uint64_t)1 << bits)
        bits++;
    return bits;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The groups of a block; for FrameUnit the vector is a block of its own. */
static uint32_t groups_of_block(const sstq_params *p)
{
    return p->mechanism == SSTQ_GROUPUNIT ? (p->groups + p->blocks - 1) / p->blocks : 1;
}

/* The candidates of the draw: signed rows, in all blocks. */
static uint32_t candidates_of(const sstq_params *p)
{
    return p->mechanism == SSTQ_GROUPUNIT ? 2 * p->frame_size * p->blocks : 2 * p->frame_size;
}

static int rows_are_consistent(const sstq_params *p)
{
    return (p->rounds == 2 || p->rounds == 3) && p->frames >= 1 && p->frames <= LARGEST_FRAME && p->inside >= 1 &&
           p->inside <= p->frame_size && p->threshold >= 1 && p->threshold < TOTAL;
}

static int groupunit_is_consistent(const sstq_params *p)
{
    uint64_t groups, most = (uint64_t)1 << 31;
    if (p->groups < 2 || p->groups > (uint32_t)1 << 24 || p->blocks < 1 || p->blocks > p->groups)
        return 0;
    groups = groups_of_block(p);
    if ((p->groups + groups - 1) / groups != p->blocks || groups * p->dim > p->frame_size ||
        2 * (uint64_t)p->frame_size * p->blocks > most || !rows_are_consistent(p))
        return 0;
    if (p->share_size == 0)
        return p->vector_frames == p->frames;
    return p->vector_frames >= 1 && p->vector_frames < p->frames && p->share_size >= p->groups &&
           p->share_size <= candidates_of(p) && p->share_inside >= 1 && p->share_inside < p->share_size &&
           p->share_threshold >= 1 && p->share_threshold < TOTAL;
}

static int flat_is_consistent(const sstq_params *p)
{
    uint32_t i, codes;
    if (p->bits < 1 || p->bits > 12 || p->steps < 1 || p->steps > 10000 || !p->schedule || !p->codebook)
        return 0;
    codes = (uint32_t)1 << p->bits;
    if (p->own < 1 || p->other < 1 || p->own > TOTAL || p->other > TOTAL / (codes - 1) ||
        p->own + (codes - 1) * p->other != TOTAL)
        return 0;
    for (i = 0; i + 1 < codes; i++)
        if (!(p->codebook[i] <= p->codebook[i + 1]))
            return 0;
    for (i = 0; i < p->steps; i++)
        if (!(p->schedule[i][0] > 0 && p->schedule[i][0] <= FLT_MAX && p->schedule[i][1] >= 0 &&
              p->schedule[i][1] <= FLT_MAX && p->schedule[i][2] > 0 && p->schedule[i][2] <= FLT_MAX))
            return 0;
    return p->codebook[0] == -1 && p->codebook[codes - 1] == 1;
}

/* C(n, r); no overflow, since those asked for are at most MOST_SETS or the first beyond it. */
static uint64_t binomial(uint64_t n, uint32_t r)
{
    uint64_t ways = 1;
    uint32_t i;
    for (i = 0; i < r; i++)
        ways = ways * (n - i) / (i + 1);
    return ways;
}

/* Frequencies: the w with share_size = C(k, w) and share_inside = C(k-1, w-1), from 1 to k/2; 0 if there is none up to
 * MOST_SETS. */
static uint32_t whole_width(const sstq_params *p)
{
    uint64_t sets = p->groups;
    uint32_t w;
    for (w = 1; p->mechanism == SSTQ_FREQUENCIES && w <= p->groups / 2 && sets <= MOST_SETS; w++) {
        if (sets == p->share_size && binomial(p->groups - 1, w - 1) == p->share_inside)
            return w;
        sets = binomial(p->groups, w + 1);
    }
    return 0;
}

/* The multipliers of affine sets of categories: a and -a give the same sets, and with one category per set all do. */
static uint32_t multipliers_of(const sstq_params *p)
{
    return p->share_inside == 1 || p->share_size < 4 || whole_width(p) ? 1 : p->share_size / 2;
}

static int frequencies_is_consistent(const sstq_params *p)
{
    if (p->groups < 2 || p->groups > (uint32_t)1 << 20 || p->dim || p->frames > 1 || p->share_threshold < 1 || p->share_threshold >= TOTAL)
        return 0;
    return whole_width(p) || (p->share_size >= p->groups && p->share_size <= (uint32_t)1 << 21 && p->share_inside > 1 &&
                              p->share_inside < p->share_size);
}

sstq_error sstq_check(const sstq_params *p)
{
    int consistent = 0;
    if (!p)
        return SSTQ_BAD_ARGUMENT;
    if (p->mechanism == SSTQ_FREQUENCIES)
        return frequencies_is_consistent(p) ? SSTQ_OK : SSTQ_BAD_PARAMETERS;
    if (!(p->clip >= 1e-100 && p->clip <= 1e100) || p->dim < 1 || p->dim > p->frame_size || p->frame_size > LARGEST_FRAME || (p->frame_size & (p->frame_size - 1)))
        return SSTQ_BAD_PARAMETERS;
    if (p->mechanism == SSTQ_FRAMEUNIT)
        consistent = rows_are_consistent(p);
    else if (p->mechanism == SSTQ_GROUPUNIT)
        consistent = groupunit_is_consistent(p);
    else if (p->mechanism == SSTQ_FLAT)
        consistent = flat_is_consistent(p);
    return consistent ? SSTQ_OK : SSTQ_BAD_PARAMETERS;
}

sstq_error sstq_sizes_of(const sstq_params *p, sstq_sizes *sizes)
{
    sstq_error error = sstq_check(p);
    if (error)
        return error;
    if (!sizes)
        return SSTQ_BAD_ARGUMENT;
    sizes->floats = 0;
    sizes->words = p->mechanism == SSTQ_FREQUENCIES ? 0 : HISTOGRAM;
    if (p->mechanism == SSTQ_FREQUENCIES)
        return SSTQ_OK;
    if (p->mechanism == SSTQ_FLAT) {
        sizes->floats = 2 * (size_t)p->frame_size;
        sizes->words += ((size_t)p->frame_size + 31) / 32;
    } else {
        sizes->floats = p->frame_size;
    }
    return SSTQ_OK;
}

uint32_t sstq_message_bits(const sstq_params *p)
{
    if (sstq_check(p))
        return 0;
    if (p->mechanism == SSTQ_FLAT)
        return p->bits + bits_below(p->frame_size);
    if (p->mechanism == SSTQ_FREQUENCIES)
        return bits_below((uint64_t)multipliers_of(p) * p->share_size);
    return bits_below(candidates_of(p)) + ((p->frames > 1) ? bits_below(p->frames) : 0);
}

uint32_t sstq_words_each(const sstq_params *p)
{
    if (sstq_check(p))
        return 0;
    return p->mechanism != SSTQ_FLAT && (p->frames > 1) ? 4 : 3;
}

/* --------------------------------------------------------- public randomness */

/* The high word of a*b, and the low one, by halves: C99 has no 128-bit integers. */
static uint64_t multiply(uint64_t a, uint64_t b, uint64_t *low)
{
    uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    uint64_t low_low = a_low * b_low, low_high = a_low * b_high, high_low = a_high * b_low;
    uint64_t middle = (low_low >> 32) + (uint32_t)low_high + (uint32_t)high_low;
    *low = (middle << 32) | (uint32_t)low_low;
    return a_high * b_high + (low_high >> 32) + (high_low >> 32) + (middle >> 32);
}

uint64_t sstq_multiply_shift(uint64_t word, uint64_t limit)
{
    uint64_t low;
    return multiply(word, limit, &low);
}

/* Up to eight characters as a little-endian integer. */
static uint64_t purpose_key(const char *purpose)
{
    uint64_t key = 0;
    uint32_t i;
    for (i = 0; i < 8 && purpose[i]; i++)
        key |= (uint64_t)(unsigned char)purpose[i] << (8 * i);
    return key;
}

static void philox(uint64_t key0, uint64_t key1, uint64_t counter, uint64_t out[4])
{
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    int round;
    for (round = 0; round < 10; round++) {
        uint64_t low0, low1;
        uint64_t high0 = multiply(UINT64_C(0xD2E7470EE14C6C93), c0, &low0);
        uint64_t high1 = multiply(UINT64_C(0xCA5A826395121157), c2, &low1);
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += UINT64_C(0x9E3779B97F4A7C15);
        key1 += UINT64_C(0xBB67AE8584CAA73B);
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void sstq_philox(uint64_t seed, const char *purpose, uint64_t counter, uint64_t out[4])
{
    philox(seed, purpose_key(purpose), counter, out);
}

/* The word of an identifier. */
static uint64_t word_of(uint64_t seed, const char *purpose, uint64_t identifier)
{
    uint64_t out[4];
    sstq_philox(seed, purpose, identifier, out);
    return out[0];
}

/* Four numbers for each value of four bits: the sign -1 or the factor 1 where the bit is 1. */
#define FOUR_BITS(f)                                                                                                  \
    {f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)}
#define SIGNS(n) {1 - 2 * ((n) & 1), 1 - ((n) & 2), 1 - ((n) >> 1 & 2), 1 - ((n) >> 2 & 2)}
#define KEEPS(n) {(n) & 1, (n) >> 1 & 1, (n) >> 2 & 1, (n) >> 3 & 1}

void sstq_apply_signs(uint64_t seed, const char *purpose, float *x, size_t count)
{
    static const float signs[16][4] = FOUR_BITS(SIGNS);
    uint64_t words[4], key = purpose_key(purpose);
    size_t start, i, k;
    for (start = 0; start < count; start += 256) {
        size_t here = count - start < 256 ? count - start : 256;
        philox(seed, key, start / 256 + 1, words);
        for (i = 0; i + 4 <= here; i += 4)
            for (k = 0; k < 4; k++)
                x[start + i + k] *= signs[words[i / 64] >> (i % 64) & 15][k];
        for (; i < here; i++)
            x[start + i] *= signs[words[i / 64] >> (i % 64) & 1][0];
    }
}

/* ----------------------------------------------------------------- transform */

/* Butterflies of one or two bits between ranges of `stride` numbers. Loops over whole ranges, so that compilers
 * find vectors; the operations are those of single bits in ascending order. */
static void join2(float *restrict x0, float *restrict x1, size_t stride)
{
    size_t k;
    for (k = 0; k < stride; k++) {
        float a = x0[k], b = x1[k];
        x0[k] = a + b;
        x1[k] = a - b;
    }
}

static void join4(float *restrict x0, float *restrict x1, float *restrict x2, float *restrict x3, size_t stride)
{
    size_t k;
    for (k = 0; k < stride; k++) {
        float a = x0[k] + x1[k], b = x0[k] - x1[k], c = x2[k] + x3[k], d = x2[k] - x3[k];
        x0[k] = a + c;
        x1[k] = b + d;
        x2[k] = a - c;
        x3[k] = b - d;
    }
}

/* Butterflies of the index bits 0 to 3. */
static void transform16(float *x)
{
    size_t k;
    for (k = 0; k < 16; k += 4) {
        float a = x[k] + x[k + 1], b = x[k] - x[k + 1], c = x[k + 2] + x[k + 3], d = x[k + 2] - x[k + 3];
        x[k] = a + c;
        x[k + 1] = b + d;
        x[k + 2] = a - c;
        x[k + 3] = b - d;
    }
    join4(x, x + 4, x + 8, x + 12, 4);
}

/* Butterflies of the index bits first <= bit < last of `size` numbers, ascending. */
static void butterflies(float *x, size_t size, uint32_t first, uint32_t last)
{
    size_t block, stride;
    uint32_t bit = first;
    if (first == 0 && last >= 4) {
        for (block = 0; block < size; block += 16)
            transform16(x + block);
        bit = 4;
    }
    for (; bit + 2 <= last; bit += 2)
        for (stride = (size_t)1 << bit, block = 0; block < size; block += 4 * stride)
            join4(x + block, x + block + stride, x + block + 2 * stride, x + block + 3 * stride, stride);
    if (bit < last)
        for (stride = (size_t)1 << bit, block = 0; block < size; block += 2 * stride)
            join2(x + block, x + block + stride, stride);
}

void sstq_transform(float *x, uint32_t bits)
{
    /* Blocks of 16 KiB first, while they are in the cache. */
    uint32_t block_bits = bits < 12 ? bits : 12;
    size_t size = (size_t)1 << bits, block;
    for (block = 0; block < size; block += (size_t)1 << block_bits)
        butterflies(x + block, (size_t)1 << block_bits, 0, block_bits);
    butterflies(x, size, block_bits, bits);
}

/* --------------------------------------------------------- rows of a frame */

/* A number read as an integer without its sign bit, which grows with the magnitude. */
static uint32_t magnitude(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits & UINT32_C(0x7FFFFFFF);
}

static int all_finite(const float *x, size_t length)
{
    uint32_t largest = 0;
    size_t i;
    for (i = 0; i < length; i++)
        largest = magnitude(x[i]) > largest ? magnitude(x[i]) : largest;
    return largest < UINT32_C(0x7F800000);
}

double sstq_norm(const float *x, size_t length, size_t offset, size_t whole)
{
    /* Squares of floats neither overflow nor underflow in doubles, so that no scale is needed. */
    double s[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    size_t i = 0, lane, end = whole / 8 * 8; /* what lies behind goes to the first lane */
    if (!x)
        return 0;
    for (; i < length && (offset + i) % 8 && offset + i < end; i++)
        s[(offset + i) % 8] += (double)x[i] * (double)x[i];
    for (; i + 8 <= length && offset + i < end; i += 8)
        for (lane = 0; lane < 8; lane++)
            s[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (; i < length && offset + i < end; i++)
        s[(offset + i) % 8] += (double)x[i] * (double)x[i];
    for (; i < length; i++)
        s[0] += (double)x[i] * (double)x[i];
    return sqrt(((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])));
}

void sstq_mix(const sstq_params *p, uint64_t seed, const float *x, size_t offset, double norm, double sign,
              float *scores)
{
    double factor = norm > 0 ? sign / norm : 0.0;
    uint32_t bits = bits_below(p->frame_size);
    size_t i;
    for (i = 0; i < p->frame_size; i++)
        scores[i] = 0;
    for (i = 0; i < p->dim; i++)
        scores[offset + i] = x ? (float)((double)x[i] * factor) : 0;
    if (!(norm > 0))
        scores[0] = (float)sign; /* the first unit vector stands for the direction of zero */
    sstq_apply_signs(seed, "signs1", scores, (size_t)groups_of_block(p) * p->dim);
    sstq_transform(scores, bits);
    sstq_apply_signs(seed, "signs2", scores, p->frame_size);
    sstq_transform(scores, bits);
    if (p->rounds == 3) {
        sstq_apply_signs(seed, "signs3", scores, p->frame_size);
        sstq_transform(scores, bits);
    }
}

/* The index of the rank-th score of a magnitude; all scores are looked at, wherever it is. */
static uint32_t ranked(const float *scores, uint32_t wanted, uint32_t rank, uint32_t count)
{
    uint32_t index = 0, seen = 0, j;
    for (j = 0; j < count; j++) {
        uint32_t is_one = magnitude(scores[j]) == wanted;
        index |= (0 - (is_one & (uint32_t)(seen == rank))) & j;
        seen += is_one;
    }
    return index;
}

/* The index of the last of the `inside` scores of largest magnitude, ties to the smaller index. */
static uint32_t last_inside(const float *scores, uint32_t count, uint32_t inside, uint32_t *memory)
{
    /* Digit by digit, 11, 10 and 10 bits: `rank` magnitudes with the digits found so far are larger. */
    static const uint32_t shifts[4] = {31, 20, 10, 0};
    uint32_t rank = inside - 1, prefix = 0, step, j;
    for (step = 1; step < 4; step++) {
        uint32_t before = shifts[step - 1], shift = shifts[step], digit = ((uint32_t)1 << (before - shift)) - 1;
        memset(memory, 0, HISTOGRAM * sizeof *memory);
        for (j = 0; j < count; j++)
            if (magnitude(scores[j]) >> before == prefix)
                memory[magnitude(scores[j]) >> shift & digit]++;
        while (memory[digit] <= rank)
            rank -= memory[digit--];
        prefix = prefix << (before - shift) | digit;
    }
    return ranked(scores, prefix, rank, count);
}

/* The rank-th index of those inside, or of those outside; `last` is that of last_inside.
 *
 * All scores are looked at, in the same steps, wherever it is: how long the search takes must not tell the person's
 * block, where it ends anywhere, from another one, for which place 0 is looked up and not sent. */
static uint32_t place_of(const float *scores, uint32_t count, uint32_t last, uint32_t wants_inside, uint32_t rank)
{
    uint32_t bar = magnitude(scores[last]), index = 0, seen = 0, j;
    for (j = 0; j < count; j++) {
        /* Up to `last` a magnitude as large as its own is inside; after it, only larger ones are. */
        uint32_t is_inside = magnitude(scores[j]) >= bar + (uint32_t)(j > last);
        uint32_t is_member = is_inside ^ wants_inside ^ 1;
        index |= (0 - (is_member & (uint32_t)(seen == rank))) & j;
        seen += is_member;
    }
    return index;
}

uint32_t sstq_draw_place(uint32_t size, uint32_t inside, uint64_t threshold, uint64_t word, uint64_t second)
{
    int is_inside = word >> 2 < threshold;
    uint32_t members = is_inside ? inside : size - inside;
    /* floor(w*members/2^62) of the high 62 bits w. */
    return (uint32_t)sstq_multiply_shift(second & ~(uint64_t)3, members) + (is_inside ? 0 : inside);
}

/* A word as a multiple of 2^-53 in [0, 1). */
static double unit_interval(uint64_t word)
{
    return (double)(word >> 11) * (1.0 / 9007199254740992.0);
}

int sstq_is_negative(double norm, double clip, uint64_t word)
{
    double share = 1 / clip * norm;
    return unit_interval(word) < (1 - (share > 1 ? 1 : share)) / 2;
}

uint32_t sstq_signed_row(const float *scores, uint32_t rows, uint32_t inside, uint32_t place, uint32_t *memory)
{
    uint32_t last = last_inside(scores, rows, inside, memory), is_inside = place < 2 * inside;
    uint32_t mask = 0 - is_inside, rank = (mask & place % inside) | (~mask & (place - 2 * inside) >> 1);
    uint32_t slot = place_of(scores, rows, last, is_inside, rank);
    uint32_t is_opposite = (uint32_t)(scores[slot] < 0) ^ (uint32_t)(place >= inside); /* -0 counts as positive */
    return 2 * slot + ((mask & is_opposite) | (~mask & place & 1));
}

/* The signed row at a place among those best aligned with x, which has the norm `length`, or its own if that is < 0. */
static uint32_t pick_row(const sstq_params *p, uint64_t seed, const float *x, double length, size_t offset,
                         uint64_t flip, uint32_t place, const sstq_buffers *buffers)
{
    float *scores = buffers->floats;
    double norm = sstq_norm(x, p->dim, offset, (size_t)groups_of_block(p) * p->dim);
    double sign = sstq_is_negative(length < 0 ? norm : length, p->clip, flip) ? -1.0 : 1.0;
    sstq_mix(p, seed, x, offset, norm, sign, scores);
    return sstq_signed_row(scores, p->frame_size, p->inside, place, buffers->words);
}

uint32_t sstq_share_row(const sstq_params *p, uint32_t group, uint32_t frame, const uint64_t *words)
{
    uint32_t size = p->share_size, multipliers = multipliers_of(p);
    uint32_t slots = least(multipliers, candidates_of(p) / size);
    uint64_t slot = sstq_multiply_shift(words[0], slots), multiplier = slot + 1;
    uint32_t place = sstq_draw_place(size, p->share_inside, p->share_threshold, words[1], words[2]);
    if (slots < multipliers) {
        uint64_t chooser = word_of(p->frame_seed, "shares", (uint64_t)frame * slots + slot);
        multiplier = sstq_multiply_shift(chooser, multipliers) + 1;
    }
    return (uint32_t)(slot * size + (multiplier * group + size - place) % size);
}

/* The number of the set at a place, of all sets of w categories, those with the person's category being the first: the
 * sum of C(c, i) over its members c, of which i are up to c. All categories are looked at. */
static uint64_t set_number(const sstq_params *p, uint32_t w, uint32_t category, uint32_t place)
{
    uint32_t is_inside = place < p->share_inside, left = w - is_inside, below = 1, other;
    uint64_t rank = is_inside ? place : place - p->share_inside, number = 0;
    for (other = p->groups - 1; other-- > 0;) {
        uint64_t ways = binomial(other, left);
        uint32_t member = other + (other >= category);
        if (rank < ways)
            continue;
        number += binomial(member, left + (is_inside && member > category));
        below += member < category;
        rank -= ways;
        left--;
    }
    return is_inside ? number + binomial(category, below) : number;
}

uint64_t sstq_category_code(const sstq_params *p, uint32_t category, const uint64_t *words)
{
    uint64_t slot = sstq_multiply_shift(words[0], multipliers_of(p)), size = p->share_size;
    uint32_t place = sstq_draw_place(p->share_size, p->share_inside, p->share_threshold, words[1], words[2]);
    uint32_t width = whole_width(p);
    if (width)
        return set_number(p, width, category, place);
    return slot * size + ((slot + 1) * category + size - place) % size;
}

/* --------------------------------------------------- Kashin representation */

void sstq_choose_columns(const sstq_params *p, float *keys, uint32_t *mask, uint32_t *memory)
{
    uint64_t seed = p->frame_seed, purpose = purpose_key("columns"), words[4], words_here[4], words_there[4];
    uint32_t size = p->frame_size, taken = 0, bar, i, j;
    /* First by 31 leading bits, reversed so that the smallest words have the largest magnitudes. */
    for (j = 0; j < size; j++) {
        uint32_t key;
        if (j % 4 == 0)
            philox(seed, purpose, j / 4 + 1, words);
        key = (uint32_t)(~words[j % 4] >> 33);
        memcpy(&keys[j], &key, sizeof key);
    }
    bar = magnitude(keys[last_inside(keys, size, p->dim, memory)]);
    memset(mask, 0, ((size_t)size + 31) / 32 * sizeof *mask);
    for (j = 0; j < size; j++) {
        uint32_t is_above = magnitude(keys[j]) > bar;
        mask[j / 32] |= is_above << (j % 32);
        taken += is_above;
    }
    /* Those with the same leading bits, usually one, by the whole word. */
    for (j = 0; j < size; j++) {
        uint32_t before = 0;
        if (magnitude(keys[j]) != bar)
            continue;
        philox(seed, purpose, j / 4 + 1, words_here);
        for (i = 0; i < size; i++)
            if (magnitude(keys[i]) == bar) {
                philox(seed, purpose, i / 4 + 1, words_there);
                before += words_there[i % 4] < words_here[j % 4] || (words_there[i % 4] == words_here[j % 4] && i < j);
            }
        mask[j / 32] |= (uint32_t)(before < p->dim - taken) << (j % 32);
    }
}

/* One step of the projection on a block of a and t, and the sums of a*a, a*s and s*s, s being the change of t. */
static void step_block(float *restrict a, float *restrict t, size_t count, size_t stride, const float factors[3],
                       double sums[3])
{
    float scale = factors[0], rate = factors[1], box = factors[2];
    float lanes[3][SSTQ_LANES] = {{0}};
    size_t column, k, lane, width = stride < SSTQ_LANES ? stride : SSTQ_LANES;
    for (column = 0; column < stride; column += width)
        for (k = 0; k < count; k++) {
            float *values = a + k * stride + column, *coordinate = t + k * stride + column;
            for (lane = 0; lane < width; lane++) {
                float before = values[lane], old = coordinate[lane], moved = old + before * rate, change;
                moved = moved < box ? moved : box;
                moved = moved > -box ? moved : -box;
                change = moved - old;
                coordinate[lane] = moved;
                values[lane] = before * scale - change;
                lanes[0][lane] += before * before;
                lanes[1][lane] += before * change;
                lanes[2][lane] += change * change;
            }
        }
    for (k = 0; k < 3; k++)
        for (lane = 0; lane < SSTQ_LANES; lane++)
            sums[k] += (double)lanes[k][lane];
}

static void keep_masked(float *a, size_t size, const uint32_t *mask)
{
    static const float keeps[16][4] = FOUR_BITS(KEEPS);
    size_t i, k;
    for (i = 0; i + 4 <= size; i += 4)
        for (k = 0; k < 4; k++)
            a[i + k] *= keeps[mask[i / 32] >> (i % 32) & 15][k];
    for (; i < size; i++)
        a[i] *= keeps[mask[i / 32] >> (i % 32) & 1][0];
}

float sstq_coordinate(const sstq_params *p, const float *x, uint32_t index, const sstq_buffers *buffers)
{
    uint32_t bits = bits_below(p->frame_size), block_bits = bits, low_bits = bits, row_bits = bits;
    uint32_t inner, joined, step, i;
    size_t size = p->frame_size, block_size, block, column;
    float *a = buffers->floats, *t = a + size, scale = 1, coordinate;
    uint32_t *mask = buffers->words + HISTOGRAM;
    double sums[2][3] = {{0, 0, 0}, {0, 0, 0}}, norm, factor;
    if (bits >= SSTQ_FUSED_FROM) {
        block_bits = least(bits - 1, SSTQ_BLOCK_BITS);
        low_bits = block_bits - least(block_bits - SSTQ_LOW_BITS, SSTQ_PASS_BITS);
        row_bits = bits - least(bits - block_bits, SSTQ_COUNT_BITS);
    }
    /* Bits that number the rows: those below `joined` are next to the mask, those from `inner` on farthest from it. */
    inner = bits - row_bits > SSTQ_PASS_BITS ? bits - SSTQ_PASS_BITS : bits;
    joined = least(inner, row_bits + SSTQ_PASS_BITS);
    block_size = (size_t)1 << block_bits;
    sstq_choose_columns(p, t, mask, buffers->words);
    norm = sstq_norm(x, p->dim, 0, p->dim);
    factor = 1 / p->clip * norm > 1 ? 1 / norm : 1 / p->clip;
    for (i = 0; i < p->dim; i++)
        t[i] = x ? (float)((double)x[i] * factor) : 0;
    sstq_apply_signs(p->frame_seed, "signs1", t, p->dim);
    for (column = 0, i = 0; column < size; column++)
        a[column] = mask[column / 32] >> (column % 32) & 1 ? t[i++] : 0;
    memset(t, 0, size * sizeof *t);
    butterflies(a, size, row_bits, bits);
    for (step = 0; step < p->steps; step++) {
        double *before = sums[step & 1], *last = sums[~step & 1];
        double reduction = 2 * before[1] - before[0] + last[0];
        double quotient = before[2] / (reduction > LEAST_REDUCTION ? reduction : LEAST_REDUCTION);
        double stretched = (double)p->schedule[step][1] * quotient;
        float relaxation = (float)(stretched < LONGEST_STEP ? stretched : LONGEST_STEP), factors[3];
        if (step > 0) {
            butterflies(a, size, inner, bits);
            butterflies(a, size, joined, inner);
            butterflies(a, size, row_bits, joined);
            keep_masked(a, size, mask);
            butterflies(a, size, row_bits, joined);
            butterflies(a, size, joined, inner);
            butterflies(a, size, inner, bits);
            scale = 1 / (float)size;
        }
        factors[0] = scale;
        factors[1] = (relaxation > p->schedule[step][0] ? relaxation : p->schedule[step][0]) * scale;
        factors[2] = p->schedule[step][2];
        before[0] = before[1] = before[2] = 0;
        butterflies(a, size, block_bits, row_bits);
        for (block = 0; block < size; block += block_size) {
            butterflies(a + block, block_size, 0, block_bits);
            step_block(a + block, t + block, block_size >> low_bits, (size_t)1 << low_bits, factors, before);
            butterflies(a + block, block_size, low_bits, block_bits);
            butterflies(a + block, block_size, 0, low_bits);
        }
        butterflies(a, size, block_bits, row_bits);
        before[0] *= (double)scale * (double)scale;
        before[1] *= (double)scale;
    }
    coordinate = t[index] / p->schedule[p->steps - 1][2];
    return coordinate < -1 ? -1 : coordinate > 1 ? 1 : coordinate;
}

uint32_t sstq_token(const double *codebook, uint32_t bits, double coordinate, uint64_t word)
{
    uint32_t lower = 0, most = ((uint32_t)1 << bits) - 2, i;
    double gap;
    for (i = 1; i <= most; i++) /* all codewords are looked at, wherever the coordinate is */
        lower += codebook[i] <= coordinate;
    gap = codebook[lower + 1] - codebook[lower];
    return lower + (unit_interval(word) < (gap > 0 ? (coordinate - codebook[lower]) / gap : 1.0));
}

uint32_t sstq_code(uint64_t own, uint64_t other, uint32_t token, uint64_t word)
{
    uint64_t place;
    if (word >> 2 < own)
        return token;
    place = ((word >> 2) - own) / other;
    return (uint32_t)place + (place >= token);
}

/* ------------------------------------------------------------------ encoding */

static uint64_t encode_flat(const sstq_params *p, const float *x, const uint64_t *words, const sstq_buffers *buffers)
{
    uint32_t index = (uint32_t)sstq_multiply_shift(words[0], p->frame_size);
    double coordinate = sstq_coordinate(p, x, index, buffers);
    uint64_t code = sstq_code(p->own, p->other, sstq_token(p->codebook, p->bits, coordinate, words[1]), words[2]);
    return code | (uint64_t)index << p->bits;
}

static uint64_t encode_row(const sstq_params *p, const float *x, double length, uint32_t group,
                           const uint64_t *words, const sstq_buffers *buffers)
{
    uint32_t groups = groups_of_block(p), block = group / groups, block_rows = 2 * p->frame_size;
    uint32_t place = sstq_draw_place(candidates_of(p), p->inside, p->threshold, words[1], words[2]), frame = 0;
    uint64_t seed = p->frame_seed, row;
    size_t offset;
    if (p->frames > 1) {
        frame = (uint32_t)sstq_multiply_shift(words[3], p->frames);
        seed = word_of(seed, "frames", frame);
    }
    /* The places of the person's block come first. The work is the same for those of others. */
    offset = (size_t)(group % groups) * p->dim;
    row = pick_row(p, seed, x, length, offset, words[0], place < block_rows ? place : 0, buffers);
    if (place < block_rows) {
        row += (uint64_t)block * block_rows;
    } else {
        uint32_t other = (place - block_rows) / block_rows;
        row = (uint64_t)(other + (other >= block)) * block_rows + (place - block_rows) % block_rows;
    }
    if (p->mechanism == SSTQ_GROUPUNIT && frame >= p->vector_frames)
        row = sstq_share_row(p, group, frame, words);
    return p->frames > 1 ? row | (uint64_t)frame << bits_below(candidates_of(p)) : row;
}

/* Overwrite secrets; `volatile` keeps compilers from leaving it out. */
static void wipe(void *memory, size_t size)
{
    volatile unsigned char *bytes = memory;
    while (size--)
        *bytes++ = 0;
}

sstq_error sstq_encode(const sstq_params *p, const float *x, size_t length, uint32_t group,
                       sstq_random random, void *context, const sstq_buffers *buffers, uint64_t *message)
{
    unsigned char bytes[8 * MOST_WORDS], spare[8];
    uint64_t words[MOST_WORDS] = {0}, chooser = 0;
    uint32_t count = sstq_words_each(p), i, has_groups;
    sstq_sizes needed;
    sstq_error error = sstq_sizes_of(p, &needed);
    if (error)
        return error;
    if (!message || (p->mechanism != SSTQ_FREQUENCIES && (!x || !buffers || !buffers->floats || !buffers->words)))
        return SSTQ_BAD_ARGUMENT;
    if (length != p->dim)
        return SSTQ_BAD_LENGTH;
    if (needed.words && (buffers->sizes.floats < needed.floats || buffers->sizes.words < needed.words))
        return SSTQ_BUFFER_TOO_SMALL;
    has_groups = p->mechanism == SSTQ_GROUPUNIT || p->mechanism == SSTQ_FREQUENCIES;
    if (!random)
        random = sstq_system_random;
    if (random(context, bytes, 8 * (size_t)count) || (has_groups && random(context, spare, 8)))
        return SSTQ_NO_RANDOMNESS;
    for (i = 0; i < 8 * count; i++)
        words[i / 8] |= (uint64_t)bytes[i] << (8 * (i % 8));
    /* Whether there is a message is seen by the server, so nothing private is refused. */
    if (x && !all_finite(x, length))
        x = NULL;
    if (!has_groups) {
        group = 0;
    } else if (group >= p->groups) {
        for (i = 0; i < 8; i++)
            chooser |= (uint64_t)spare[i] << (8 * i);
        group = (uint32_t)sstq_multiply_shift(chooser, p->groups);
        x = NULL;
    }
    *message = p->mechanism == SSTQ_FLAT          ? encode_flat(p, x, words, buffers)
               : p->mechanism == SSTQ_FREQUENCIES ? sstq_category_code(p, group, words)
                                                  : encode_row(p, x, -1, group, words, buffers);
    /* With these words, the message would tell more than it may. */
    wipe(bytes, sizeof bytes);
    wipe(spare, sizeof spare);
    wipe(words, sizeof words);
    return SSTQ_OK;
}

/* ------------------------------------------------------------------- surveys */

/* The number of messages that a part has about one item. */
static uint64_t limit_of(const sstq_params *p)
{
    if (p->mechanism == SSTQ_FREQUENCIES)
        return (uint64_t)multipliers_of(p) * p->share_size;
    return (uint64_t)candidates_of(p) * p->frames;
}

static int is_frequencies(const sstq_question *q, uint32_t categories, uint32_t items)
{
    return q->part.mechanism == SSTQ_FREQUENCIES && q->part.groups == categories && q->items == items;
}

static int is_vector(const sstq_question *q, sstq_mechanism mechanism, uint32_t dim)
{
    return q->part.mechanism == mechanism && q->part.dim == dim && q->items == 1;
}

static int is_ranged(const sstq_question *q)
{
    return q->type == SSTQ_NUMBER || q->type == SSTQ_COUNT;
}

/* Whether the part of a question is made for it. */
static int question_is_consistent(const sstq_survey *s, const sstq_question *q)
{
    const sstq_question *group, *value;
    if (sstq_check(&q->part) || q->draw < 1 || q->draw > TOTAL)
        return 0;
    switch (q->type) {
    case SSTQ_CHOICE:
        return q->labels >= 1 && is_frequencies(q, q->labels + 1, 1);
    case SSTQ_MULTICHOICE:
        return q->labels >= 1 && q->labels < (uint32_t)1 << 20 &&
               (is_frequencies(q, 2, q->labels + 1) || is_vector(q, SSTQ_FRAMEUNIT, q->labels + 1));
    case SSTQ_NUMBER:
        return q->low >= -1e100 && q->high <= 1e100 && q->low < q->high && q->labels >= 2 && q->labels <= 512 &&
               is_frequencies(q, q->labels + 1, 1);
    case SSTQ_COUNT:
        return q->labels >= 2 && q->labels <= 512 && q->low == 0 && q->high == q->labels - 1 &&
               is_frequencies(q, q->labels + 1, 1);
    case SSTQ_VECTOR:
        return is_vector(q, SSTQ_FRAMEUNIT, q->part.dim);
    case SSTQ_MEAN:
        return q->value < s->count && is_ranged(&s->questions[q->value]) && is_frequencies(q, 3, 1);
    case SSTQ_BY:
        if (q->group >= s->count || q->value >= s->count)
            return 0;
        group = &s->questions[q->group];
        value = &s->questions[q->value];
        return group->type == SSTQ_CHOICE && q->part.groups == group->labels + 1 &&
               (is_ranged(value)             ? is_vector(q, SSTQ_GROUPUNIT, 1)
                : value->type == SSTQ_VECTOR ? is_vector(q, SSTQ_GROUPUNIT, value->part.dim)
                                             : 0);
    }
    return 0;
}

/* The largest number of answers to a question; 0 if there are more than a message holds. */
static uint64_t most_answers(const sstq_survey *s)
{
    uint64_t most = 1, limit;
    uint32_t i;
    for (i = 0; i < s->count; i++) {
        limit = limit_of(&s->questions[i].part);
        if (limit > ((uint64_t)1 << MOST_BITS) / s->questions[i].items)
            return 0;
        limit *= s->questions[i].items;
        most = limit > most ? limit : most;
    }
    return most;
}

static uint32_t answer_bits(const sstq_survey *s)
{
    uint32_t bits = bits_below(most_answers(s));
    return bits ? bits : 1;
}

sstq_error sstq_check_survey(const sstq_survey *s)
{
    uint64_t left = TOTAL;
    uint32_t i;
    if (!s || !s->questions)
        return SSTQ_BAD_ARGUMENT;
    if (s->count < 1 || s->count > MOST_QUESTIONS)
        return SSTQ_BAD_PARAMETERS;
    for (i = 0; i < s->count; i++) {
        if (!question_is_consistent(s, &s->questions[i]) || s->questions[i].draw > left)
            return SSTQ_BAD_PARAMETERS;
        left -= s->questions[i].draw;
    }
    if (left || !most_answers(s) || answer_bits(s) + bits_below(s->count) > MOST_BITS)
        return SSTQ_BAD_PARAMETERS;
    return SSTQ_OK;
}

sstq_error sstq_survey_sizes(const sstq_survey *s, sstq_sizes *sizes)
{
    sstq_error error = sstq_check_survey(s);
    uint32_t i;
    if (error)
        return error;
    if (!sizes)
        return SSTQ_BAD_ARGUMENT;
    sizes->floats = sizes->words = 0;
    for (i = 0; i < s->count; i++) {
        const sstq_question *q = &s->questions[i];
        sstq_sizes part = {0, 0};
        (void)sstq_sizes_of(&q->part, &part);
        if (q->type == SSTQ_MULTICHOICE && q->items == 1)
            part.floats += q->part.dim; /* the marks as a vector */
        sizes->floats = part.floats > sizes->floats ? part.floats : sizes->floats;
        sizes->words = part.words > sizes->words ? part.words : sizes->words;
    }
    return SSTQ_OK;
}

uint32_t sstq_survey_bits(const sstq_survey *s)
{
    return sstq_check_survey(s) ? 0 : answer_bits(s) + bits_below(s->count);
}

static uint32_t label_of(const sstq_question *q, const sstq_answer *answer)
{
    return answer->given ? least(answer->label, q->labels) : q->labels;
}

/* The number within the bounds; NaN if there is none. */
static double number_of(const sstq_question *q, const sstq_answer *answer)
{
    double number = answer->number < q->low ? q->low : answer->number > q->high ? q->high : answer->number;
    return !answer->given || (q->type == SSTQ_COUNT && number != floor(number)) ? NAN : number;
}

/* Whether a label is marked; the last mark is that of no answer. */
static uint32_t mark_of(const sstq_question *q, const sstq_answer *answer, uint32_t place)
{
    const unsigned char *marks = answer->given ? answer->marks : NULL;
    if (place == q->labels)
        return !marks;
    return marks && marks[place];
}

static const float *vector_of(const sstq_answer *answer)
{
    return answer->given ? answer->vector : NULL;
}

static uint32_t category_of(const sstq_survey *s, const sstq_question *q, const sstq_answer *answers,
                            const uint64_t *words)
{
    const sstq_answer *answer = &answers[q - s->questions];
    double number, place;
    if (q->type == SSTQ_CHOICE)
        return label_of(q, answer);
    if (q->type == SSTQ_MULTICHOICE)
        return mark_of(q, answer, (uint32_t)sstq_multiply_shift(words[5], q->items));
    if (q->type == SSTQ_MEAN) {
        const sstq_question *value = &s->questions[q->value];
        place = (number_of(value, &answers[q->value]) - value->low) / (value->high - value->low);
        return place != place ? 2 : unit_interval(words[5]) >= place;
    }
    number = number_of(q, answer);
    if (number != number)
        return q->labels;
    if (q->type == SSTQ_COUNT)
        return (uint32_t)number;
    place = floor((number - q->low) / (q->high - q->low) * q->labels);
    return place < q->labels ? (uint32_t)place : q->labels - 1;
}

/* The answer of a part with a vector: its row and frame as one number. */
static uint64_t encode_vector(const sstq_survey *s, const sstq_question *q, const sstq_answer *answers,
                              const uint64_t *words, const sstq_buffers *buffers)
{
    const sstq_params *p = &q->part;
    const sstq_answer *answer = &answers[q - s->questions];
    const float *x = vector_of(answer);
    float *marks = buffers->floats + p->frame_size, direction;
    double length = -1;
    uint64_t sent, row_bits = bits_below(candidates_of(p));
    uint32_t group = 0, i;
    if (q->type == SSTQ_MULTICHOICE) {
        for (i = 0; i < p->dim; i++)
            marks[i] = mark_of(q, answer, i) ? 0.5f : -0.5f;
        x = marks;
    } else if (q->type == SSTQ_BY) {
        const sstq_question *choice = &s->questions[q->group], *value = &s->questions[q->value];
        group = label_of(choice, &answers[q->group]);
        x = vector_of(&answers[q->value]);
        if (is_ranged(value)) {
            double number = number_of(value, &answers[q->value]), from = number - (value->low + value->high) / 2;
            group = number != number ? choice->labels : group;
            /* A number from the middle of its range is a vector of this direction and length, in double precision. */
            direction = from > 0 ? 1.0f : from < 0 ? -1.0f : 0.0f;
            length = fabs(from);
            x = &direction;
        }
        if (group == choice->labels) {
            length = -1;
            x = NULL;
        }
    }
    if (x && !all_finite(x, p->dim))
        x = NULL;
    sent = encode_row(p, x, length, group, words, buffers);
    if (p->frames == 1)
        return sent;
    return (sent & (((uint64_t)1 << row_bits) - 1)) * p->frames + (sent >> row_bits);
}

sstq_error sstq_encode_survey(const sstq_survey *s, const sstq_answer *answers, sstq_random random, void *context,
                              const sstq_buffers *buffers, uint64_t *message)
{
    unsigned char bytes[8 * SSTQ_SURVEY_WORDS];
    uint64_t words[SSTQ_SURVEY_WORDS] = {0}, passed = 0, sent;
    uint32_t question = 0, item, i;
    const sstq_question *q;
    sstq_sizes needed;
    sstq_error error = sstq_survey_sizes(s, &needed);
    if (error)
        return error;
    if (!answers || !message || !buffers || (needed.words && (!buffers->floats || !buffers->words)))
        return SSTQ_BAD_ARGUMENT;
    if (buffers->sizes.floats < needed.floats || buffers->sizes.words < needed.words)
        return SSTQ_BUFFER_TOO_SMALL;
    if (!random)
        random = sstq_system_random;
    if (random(context, bytes, sizeof bytes))
        return SSTQ_NO_RANDOMNESS;
    for (i = 0; i < sizeof bytes; i++)
        words[i / 8] |= (uint64_t)bytes[i] << (8 * (i % 8));
    /* All draws are looked at, whichever question it is; no answer is. */
    for (i = 0; i < s->count; i++) {
        passed += s->questions[i].draw;
        question += passed <= words[4] >> 2;
    }
    q = &s->questions[question];
    item = (uint32_t)sstq_multiply_shift(words[5], q->items);
    if (q->part.mechanism == SSTQ_FREQUENCIES)
        sent = sstq_category_code(&q->part, category_of(s, q, answers, words), words);
    else
        sent = encode_vector(s, q, answers, words, buffers);
    *message = (item * limit_of(&q->part) + sent) | (uint64_t)question << answer_bits(s);
    wipe(bytes, sizeof bytes);
    wipe(words, sizeof words);
    return SSTQ_OK;
}

void sstq_pack(uint64_t message, uint32_t message_bits, size_t number, unsigned char *bytes)
{
    size_t bit = number * message_bits;
    uint32_t k;
    for (k = 0; k < message_bits; k++, bit++) {
        if (bit % 8 == 0)
            bytes[bit / 8] = 0;
        bytes[bit / 8] |= (unsigned char)((message >> k & 1) << (bit % 8));
    }
}

int sstq_system_random(void *context, unsigned char *bytes, size_t size)
{
    size_t filled = 0;
    (void)context;
    (void)bytes;
#if defined(__linux__) && defined(SSTQ_HAS_URANDOM)
    while (filled < size) {
        ssize_t got = getrandom(bytes + filled, size - filled, 0);
        if (got <= 0)
            break;
        filled += (size_t)got;
    }
#endif
#ifdef SSTQ_HAS_URANDOM
    if (filled < size) {
        FILE *source = fopen("/dev/urandom", "rb");
        if (source) {
            filled += fread(bytes + filled, 1, size - filled, source);
            fclose(source);
        }
    }
#endif
    return filled < size;
}
