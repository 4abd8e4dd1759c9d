/* Encode a vector, a category or the answers to a survey as one locally private message of a few bytes, with the same
 * bits as the Python library sstq.
 *
 * Mechanisms: FrameUnit, GroupUnit, SSTQ with the flat channel, the Hadamard frame and kashin="certified", Frequencies,
 * and surveys of all types of questions.
 * Nothing is allocated: sstq_sizes_of tells how much memory to hand over. `sstq inspect --c-header` writes
 * the parameters.
 *
 * The arithmetic is IEEE 754: compile without -ffast-math, with -ffp-contract=off, and leave subnormal numbers on.
 * Privacy does not depend on that, only agreement with the library to the last bit does.
 */
#ifndef SSTQ_H
#define SSTQ_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { SSTQ_FRAMEUNIT = 1, SSTQ_GROUPUNIT = 2, SSTQ_FLAT = 3, SSTQ_FREQUENCIES = 4 } sstq_mechanism;

typedef enum {
    SSTQ_OK = 0,
    SSTQ_BAD_PARAMETERS,   /* the parameters contradict each other: write them again with `sstq inspect` */
    SSTQ_BAD_ARGUMENT,     /* a pointer is NULL */
    SSTQ_BAD_LENGTH,       /* the vector does not have `dim` numbers */
    SSTQ_BUFFER_TOO_SMALL, /* see sstq_sizes_of */
    SSTQ_NO_RANDOMNESS     /* the source of random bytes failed; there is no message */
} sstq_error;

/* What client and server agree on. All of it is public. Fields of other mechanisms are 0. */
typedef struct {
    sstq_mechanism mechanism;
    const char *digest;    /* of the mechanism, in hexadecimal, as an upload states it; NULL if unknown */
    double epsilon;        /* for the reader; the draw is made of the integers below */
    double clip;           /* longer vectors are scaled down to this norm */
    uint32_t dim;          /* d, the numbers of a vector */
    uint32_t frame_size;   /* N, a power of two */
    uint64_t frame_seed;

    /* FrameUnit and GroupUnit */
    uint32_t rounds;       /* transforms of a mixing: 2 or 3 */
    uint32_t frames;       /* G, among which clients spread */
    uint32_t inside;       /* k */
    uint64_t threshold;    /* T: one of the k best rows is sent with probability T/2^62 */

    /* GroupUnit and Frequencies, whose categories are the groups and whose draw is that of the shares */
    uint32_t groups;
    uint32_t blocks;       /* B */
    uint32_t vector_frames;   /* the frames below this number are for people who send a vector; G if all are */
    uint32_t share_size;      /* the candidates of people who send their group only; 0 if nobody does */
    uint32_t share_inside;    /* those of them that hold the person's group */
    uint64_t share_threshold;

    /* SSTQ */
    uint32_t bits;         /* b: 2^b codes */
    uint32_t steps;
    const float (*schedule)[3]; /* `steps` rows: least relaxation, stretch of the quotient, bound of the coordinates */
    const double *codebook;     /* 2^b codewords from -1 to 1 */
    uint64_t own, other;        /* weights of the token itself and of each other one; they sum to 2^62 */
} sstq_params;

/* A question of a survey. By takes the answers to two others, Mean that to one. */
typedef enum {
    SSTQ_CHOICE = 1,
    SSTQ_MULTICHOICE,
    SSTQ_NUMBER,
    SSTQ_VECTOR,
    SSTQ_BY,
    SSTQ_COUNT,
    SSTQ_MEAN
} sstq_type;

typedef struct {
    sstq_type type;
    const char *name;
    uint64_t draw;           /* of 2^62: how often it is drawn */
    uint32_t items;          /* of which one is drawn; 1 but for some questions of several choices */
    sstq_params part;        /* what answers it; its digest is NULL */
    uint32_t labels;         /* choices: how many; Number and Count: the bins, the numbers */
    const char *const *label_names; /* of choices, in UTF-8; NULL if unknown */
    double low, high;        /* Number and Count */
    uint32_t group, value;   /* By: the places of a choice, and of a number or a vector; Mean: that of a number */
} sstq_question;

typedef struct {
    const char *digest;
    double epsilon;          /* of a message; for the reader */
    uint32_t count;
    const sstq_question *questions;
} sstq_survey;

/* What a person answers to a question; {0} is no answer. Nothing is refused: what cannot be is no answer. */
typedef struct {
    uint32_t given;             /* 0: no answer, whatever the rest says; 1 otherwise */
    uint32_t label;             /* Choice: the number of the label, from 0 on; any other is no answer */
    const unsigned char *marks; /* MultiChoice: a byte per label, not 0 if it is chosen; NULL is no answer */
    double number;              /* Number and Count: NaN is no answer; beyond the bounds it is moved to them */
    const float *vector;        /* Vector: part.dim numbers; NULL, and any that is not finite, is zero */
} sstq_answer;

typedef struct {
    size_t floats, words;  /* numbers of float and of uint32_t */
} sstq_sizes;

typedef struct {
    float *floats;
    uint32_t *words;
    sstq_sizes sizes;
} sstq_buffers;

/* Fill `size` bytes with secret uniform randomness and return 0; anything else fails the encoding. */
typedef int (*sstq_random)(void *context, unsigned char *bytes, size_t size);

/* "SSTQ_OK", "SSTQ_BAD_LENGTH", ...; never NULL. */
const char *sstq_error_name(sstq_error error);

/* SSTQ_OK or SSTQ_BAD_PARAMETERS. The other functions check on their own. */
sstq_error sstq_check(const sstq_params *params);

/* How large the buffers must be. A call leaves traces of the vector in them: wipe them if others may read memory. */
sstq_error sstq_sizes_of(const sstq_params *params, sstq_sizes *sizes);

/* The bits of a message, at most 61; 0 for bad parameters. One message takes (bits + 7)/8 bytes. */
uint32_t sstq_message_bits(const sstq_params *params);

/* The 64-bit words that every message takes from the source, whatever the vector; 0 for bad parameters. */
uint32_t sstq_words_each(const sstq_params *params);

/* Encode x, `length` numbers of any size, as one message. For a mechanism with several messages per person, which go to
 * a shuffler, call it once for each of them.
 *
 * The server sees whether there is a message, so no private value is refused: a vector with NaN or infinity is encoded
 * as the zero vector. So is that of a group that does not exist, in a group drawn uniformly.
 *
 * group: the private group (GroupUnit), or the category (Frequencies, with x = NULL and length = 0), otherwise ignored.
 * random: NULL for the operating system. It is called after the arguments are checked, once, and for GroupUnit and
 *     Frequencies once more for 8 bytes, whatever the vector; words are little-endian.
 */
sstq_error sstq_encode(const sstq_params *params, const float *x, size_t length, uint32_t group,
                       sstq_random random, void *context, const sstq_buffers *buffers, uint64_t *message);

/* The same for a survey: SSTQ_OK or SSTQ_BAD_PARAMETERS; the buffers; the bits of a message, at most 62. */
sstq_error sstq_check_survey(const sstq_survey *survey);
sstq_error sstq_survey_sizes(const sstq_survey *survey, sstq_sizes *sizes);
uint32_t sstq_survey_bits(const sstq_survey *survey);

/* Encode a person's answers, one per question in their order, as one message. The question is drawn before any answer is
 * looked at. The source is called once, for SSTQ_SURVEY_WORDS words, whatever the answers. */
enum { SSTQ_SURVEY_WORDS = 6 };
sstq_error sstq_encode_survey(const sstq_survey *survey, const sstq_answer *answers, sstq_random random, void *context,
                              const sstq_buffers *buffers, uint64_t *message);

/* Write message `number` of an upload, counted from 0, to its bytes: (n*message_bits + 7)/8 of them for n messages,
 * which are to be written in order. */
void sstq_pack(uint64_t message, uint32_t message_bits, size_t number, unsigned char *bytes);

/* The operating system's source: getrandom or /dev/urandom. It fails with -DSSTQ_NO_SYSTEM_RANDOM and where there is
 * neither: pass a source of your own then. */
int sstq_system_random(void *context, unsigned char *bytes, size_t size);

/* The steps of an encoder, for test vectors. Arguments are not checked. */

/* The order of SSTQ's float32 sums. Index bits are cut into those of a block, of a row and of the rows' numbers; sums
 * are kept in SSTQ_LANES parts per block. Frames of fewer than 2^SSTQ_FUSED_FROM vectors are one block. */
enum {
    SSTQ_FUSED_FROM = 10, /* bits of the smallest frame that is cut */
    SSTQ_BLOCK_BITS = 11, /* at most so many bits of a block */
    SSTQ_LOW_BITS = 8,    /* at least so many bits of a block below those joined with the step */
    SSTQ_PASS_BITS = 3,   /* at most so many bits joined with the step or with the mask */
    SSTQ_COUNT_BITS = 8,  /* at most so many bits of the rows' numbers */
    SSTQ_LANES = 16
};

/* Philox4x64-10: the four words of a counter (counter, 0, 0, 0) under the key (seed, purpose). */
void sstq_philox(uint64_t seed, const char *purpose, uint64_t counter, uint64_t out[4]);
/* floor(word * limit / 2^64). */
uint64_t sstq_multiply_shift(uint64_t word, uint64_t limit);
/* Multiply x by the first `count` public signs. */
void sstq_apply_signs(uint64_t seed, const char *purpose, float *x, size_t count);
/* The unnormalised Walsh-Hadamard transform of 2^bits numbers, in place, index bits in ascending order. */
void sstq_transform(float *x, uint32_t bits);
/* The norm of x, whose first number stands at index `offset` of a vector of `whole` numbers that are 0 elsewhere. */
double sstq_norm(const float *x, size_t length, size_t offset, size_t whole);
/* Whether the vector is turned into its opposite, which keeps norms below clip unbiased. */
int sstq_is_negative(double norm, double clip, uint64_t word);
/* The place among `size` candidates, of which `inside` are inside, from two random words. */
uint32_t sstq_draw_place(uint32_t size, uint32_t inside, uint64_t threshold, uint64_t word, uint64_t second);
/* The N scores of sign*x, x of that norm standing at `offset` of its block, in the frame of that seed. */
void sstq_mix(const sstq_params *params, uint64_t seed, const float *x, size_t offset, double norm, double sign,
              float *scores);
/* The signed row 2*j, + 1 for the opposite of row j, at a place among all: the `inside` ones of the largest magnitude
 * with the sign of their score, by index, then their opposites, then the others. 2048 words of memory. */
uint32_t sstq_signed_row(const float *scores, uint32_t rows, uint32_t inside, uint32_t place, uint32_t *memory);
/* What somebody sends who sends the group only (GroupUnit), from three random words. */
uint32_t sstq_share_row(const sstq_params *params, uint32_t group, uint32_t frame, const uint64_t *words);
/* What somebody sends who has a category (Frequencies), from three random words. */
uint64_t sstq_category_code(const sstq_params *params, uint32_t category, const uint64_t *words);
/* Mark the d of N places with the smallest words of the stream "columns": a bit each; N floats and 2048 words of
 * memory. */
void sstq_choose_columns(const sstq_params *params, float *keys, uint32_t *mask, uint32_t *memory);
/* A coordinate, in [-1, 1], of the Kashin representation of x; buffers as for sstq_encode. All of them, in units of
 * 1/bound, are left in the second half of the floats. */
float sstq_coordinate(const sstq_params *params, const float *x, uint32_t index, const sstq_buffers *buffers);
/* Round to one of the 2^bits codewords at random, without bias. */
uint32_t sstq_token(const double *codebook, uint32_t bits, double coordinate, uint64_t word);
/* The token if the word is below its weight, else one of the others, in order. */
uint32_t sstq_code(uint64_t own, uint64_t other, uint32_t token, uint64_t word);

#ifdef __cplusplus
}
#endif

#endif
