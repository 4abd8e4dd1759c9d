/* A fuzz target for libFuzzer; with -DSSTQ_PLAIN a driver of its own, for compilers without libFuzzer:
 *
 *   clang -std=c99 -g -O1 -ffp-contract=off -fsanitize=fuzzer,address,undefined fuzz.c sstq.c -lm -o fuzz && ./fuzz
 *   gcc -std=c99 -g -O1 -ffp-contract=off -fsanitize=address,undefined -DSSTQ_PLAIN fuzz.c sstq.c -lm -o fuzz && ./fuzz
 *
 * Parameters, vector and words come from the input. Buffers are exactly as large as the encoder asks for, so that the
 * sanitizers see every step beyond them. */
#include "sstq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) ((condition) ? (void)0 : (fprintf(stderr, "line %d: %s\n", __LINE__, #condition), abort()))

typedef struct {
    const unsigned char *bytes;
    size_t size, calls, asked;
} input;

/* The next bytes of the input, and zeros behind its end. */
static void take(input *in, void *target, size_t size)
{
    size_t given = in->size < size ? in->size : size;
    memset(target, 0, size);
    if (given)
        memcpy(target, in->bytes, given);
    in->bytes += given;
    in->size -= given;
}

static uint32_t take_below(input *in, uint32_t limit)
{
    uint32_t number;
    take(in, &number, sizeof number);
    return number % limit;
}

static int hand_out(void *context, unsigned char *bytes, size_t size)
{
    input *in = context;
    in->calls++;
    in->asked += size;
    take(in, bytes, size);
    return 0;
}

/* Parameters that are often consistent: most inputs would be refused otherwise. */
static sstq_params take_params(input *in, float schedule[][3], double *codebook)
{
    static const sstq_mechanism kinds[] = {SSTQ_FRAMEUNIT, SSTQ_GROUPUNIT, SSTQ_FLAT, (sstq_mechanism)5};
    sstq_params p;
    uint32_t i, repaired = take_below(in, 8) > 0;
    memset(&p, 0, sizeof p);
    p.mechanism = kinds[take_below(in, repaired ? 3 : 4)];
    take(in, &p.clip, sizeof p.clip);
    p.frame_size = (uint32_t)1 << take_below(in, 13);
    p.dim = take_below(in, 300);
    take(in, &p.frame_seed, sizeof p.frame_seed);
    p.rounds = 2 + take_below(in, 3);
    p.frames = take_below(in, 100);
    p.inside = take_below(in, 1 << 13);
    take(in, &p.threshold, sizeof p.threshold);
    p.groups = take_below(in, 100);
    p.blocks = take_below(in, 20);
    p.vector_frames = take_below(in, 100);
    p.share_size = take_below(in, 2) ? take_below(in, 200) : 0;
    p.share_inside = take_below(in, 20);
    take(in, &p.share_threshold, sizeof p.share_threshold);
    p.bits = take_below(in, 14);
    p.steps = take_below(in, 12);
    take(in, &p.other, sizeof p.other);
    for (i = 0; i < 12; i++)
        take(in, schedule[i], sizeof schedule[i]);
    for (i = 0; i < 1 << 12; i++)
        codebook[i] = i < (uint32_t)1 << p.bits >> 1 ? -1 : 1;
    p.schedule = (const float(*)[3])schedule;
    p.codebook = codebook;
    p.own = ((uint64_t)1 << 62) - (((uint64_t)1 << p.bits) - 1) * p.other;
    if (!repaired)
        return p;
    p.clip = p.clip > 1e-100 && p.clip < 1e100 ? p.clip : 1;
    p.dim = 1 + p.dim % p.frame_size;
    p.rounds = 2 + p.rounds % 2;
    p.frames += p.frames == 0;
    p.threshold = 1 + (p.threshold >> 3);
    p.inside = 1 + p.inside % p.frame_size;
    p.groups += 2;
    p.blocks = (p.groups + p.blocks) / (p.blocks + 1);
    if (p.share_size && p.frames > 1) {
        p.vector_frames = 1 + p.vector_frames % (p.frames - 1);
        p.share_size = p.share_size < p.groups ? p.groups : p.share_size;
        p.share_inside = 1 + p.share_inside % (p.share_size - 1);
        p.share_threshold = 1 + (p.share_threshold >> 3);
    } else {
        p.share_size = 0;
        p.vector_frames = p.frames;
    }
    p.bits = 1 + p.bits % 12;
    p.steps += p.steps == 0;
    p.other = 1 + p.other % (((uint64_t)1 << 62) / ((uint64_t)1 << p.bits));
    p.own = ((uint64_t)1 << 62) - (((uint64_t)1 << p.bits) - 1) * p.other;
    for (i = 0; i < 36; i++)
        if (!(schedule[i / 3][i % 3] > 0 && schedule[i / 3][i % 3] < 1e30f))
            schedule[i / 3][i % 3] = 1.5f;
    for (i = 0; i < (uint32_t)1 << p.bits; i++)
        codebook[i] = 2.0 * i / (((uint32_t)1 << p.bits) - 1) - 1;
    return p;
}

/* Frequencies that are consistent. */
static sstq_params take_frequencies(input *in, uint32_t categories)
{
    sstq_params p;
    memset(&p, 0, sizeof p);
    p.mechanism = SSTQ_FREQUENCIES;
    p.groups = categories;
    p.share_size = categories + take_below(in, 3);
    p.share_inside = p.share_size == categories ? 1 : 2 + take_below(in, categories - 1);
    if (categories > 3 && take_below(in, 2)) { /* all pairs of categories */
        p.share_size = categories * (categories - 1) / 2;
        p.share_inside = categories - 1;
    }
    take(in, &p.share_threshold, sizeof p.share_threshold);
    p.share_threshold = 1 + (p.share_threshold >> 3);
    return p;
}

/* A choice, several choices, a number and, if the parameters fit, a question of theirs: all with any answers. */
static void try_survey(input *in, sstq_params p)
{
    sstq_question questions[5];
    sstq_answer answers[5];
    sstq_survey survey = {NULL, 1.0, 3, questions};
    sstq_sizes sizes = {0, 0};
    sstq_buffers buffers;
    uint64_t message = 0, left = (uint64_t)1 << 62;
    uint32_t labels = 1 + take_below(in, 20), wanted = take_below(in, 8), calls = (uint32_t)in->calls, i;
    unsigned char *marks;
    float *x = malloc((p.dim + 1) * sizeof *x);
    sstq_error error;
    if (!sstq_check(&p) && p.mechanism != SSTQ_FLAT && wanted % 2) /* as many as fit the parameters */
        labels = (p.mechanism == SSTQ_GROUPUNIT ? p.groups : p.dim > 1 ? p.dim : 2) - 1;
    marks = malloc(labels);
    CHECK(marks && x);
    take(in, marks, labels);
    take(in, x, p.dim * sizeof *x);
    memset(questions, 0, sizeof questions);
    for (i = 0; i < 5; i++) {
        questions[i].type = (sstq_type)(i + 1);
        questions[i].labels = labels;
        questions[i].items = 1;
        questions[i].part = p;
        take(in, &answers[i].label, sizeof answers[i].label);
        take(in, &answers[i].number, sizeof answers[i].number);
        answers[i].given = take_below(in, 4);
        answers[i].label %= labels + 2;
        answers[i].marks = take_below(in, 2) ? marks : NULL;
        answers[i].vector = take_below(in, 2) ? x : NULL;
    }
    questions[0].part = take_frequencies(in, labels + 1);
    questions[1].part = take_frequencies(in, 2);
    questions[1].items = labels + 1;
    questions[2].labels = labels + 1;
    questions[2].part = take_frequencies(in, labels + 2);
    questions[2].high = 1.0 + take_below(in, 9);
    if (p.mechanism == SSTQ_FRAMEUNIT && !sstq_check(&p)) {
        survey.count = 4; /* a vector; and several choices as a vector if it is as long as that */
        if (p.dim == labels + 1) {
            questions[1].part = p;
            questions[1].items = 1;
        }
    } else if (p.mechanism == SSTQ_GROUPUNIT && !sstq_check(&p) && p.groups == labels + 1) {
        questions[3] = questions[4]; /* the mean of the number, if it has one dimension, per label */
        questions[3].value = 2;
        survey.count = p.dim == 1 ? 4 : 3;
    }
    for (i = 0; i + 1 < survey.count; i++)
        left -= questions[i].draw = left / (2 + take_below(in, 5));
    questions[survey.count - 1].draw = left;
    if (wanted == 0)
        questions[0].items = take_below(in, 3);
    error = sstq_survey_sizes(&survey, &sizes);
    CHECK(error == sstq_check_survey(&survey) && (error == SSTQ_OK || wanted == 0));
    buffers.floats = malloc((sizes.floats + !sizes.floats) * sizeof *buffers.floats);
    buffers.words = malloc((sizes.words + !sizes.words) * sizeof *buffers.words);
    buffers.sizes = sizes;
    CHECK(buffers.floats && buffers.words);
    CHECK(error == sstq_encode_survey(&survey, answers, hand_out, in, &buffers, &message));
    CHECK(error ? in->calls == calls : in->calls == calls + 1 && message >> sstq_survey_bits(&survey) == 0);
    free(marks);
    free(x);
    free(buffers.floats);
    free(buffers.words);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
    static float schedule[12][3];
    static double codebook[1 << 12];
    input in = {0}, again;
    sstq_params p;
    sstq_sizes sizes = {0, 0};
    sstq_buffers buffers;
    uint64_t message = 0, repeated = 0;
    uint32_t group, bits, small;
    float *x;
    sstq_error error;
    in.bytes = bytes;
    in.size = size;
    p = take_params(&in, schedule, codebook);
    group = take_below(&in, 110);
    small = take_below(&in, 16);
    error = sstq_sizes_of(&p, &sizes);
    bits = sstq_message_bits(&p);
    CHECK(error == sstq_check(&p) && (error ? bits == 0 : bits >= 1 && bits <= 61));
    x = malloc((p.dim + 1) * sizeof *x);
    buffers.floats = malloc((sizes.floats + !sizes.floats) * sizeof *buffers.floats);
    buffers.words = malloc((sizes.words + !sizes.words) * sizeof *buffers.words);
    buffers.sizes = sizes;
    CHECK(x && buffers.floats && buffers.words);
    take(&in, x, p.dim * sizeof *x);
    if (small == 0 && !error)
        buffers.sizes.floats--;
    again = in;
    error = sstq_encode(&p, x, p.dim, group, hand_out, &in, &buffers, &message);
    CHECK(error == sstq_encode(&p, x, p.dim, group, hand_out, &again, &buffers, &repeated));
    CHECK(message == repeated && in.calls == (error ? 0u : p.mechanism == SSTQ_GROUPUNIT ? 2u : 1u));
    CHECK(strcmp(sstq_error_name(error), "SSTQ_UNKNOWN_ERROR"));
    if (!sstq_check(&p)) {
        size_t asked = 8 * (sstq_words_each(&p) + (p.mechanism == SSTQ_GROUPUNIT));
        CHECK(error == (small ? SSTQ_OK : SSTQ_BUFFER_TOO_SMALL)); /* whatever vector and group are */
        CHECK(error != SSTQ_OK || (message >> bits == 0 && in.asked == asked));
    } else {
        CHECK(error == SSTQ_BAD_PARAMETERS);
    }
    try_survey(&in, p);
    free(x);
    free(buffers.floats);
    free(buffers.words);
    return 0;
}

#ifdef SSTQ_PLAIN
int main(int count, char **arguments)
{
    unsigned long runs = count > 1 ? strtoul(arguments[1], NULL, 10) : 10000, run;
    uint64_t state = count > 2 ? strtoul(arguments[2], NULL, 10) : 1, words[256];
    size_t i;
    for (run = 0; run < runs; run++) {
        for (i = 0; i < 256; i++) { /* SplitMix64 */
            uint64_t word = state += UINT64_C(0x9E3779B97F4A7C15);
            word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
            word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
            words[i] = word ^ (word >> 31);
        }
        LLVMFuzzerTestOneInput((const unsigned char *)words, words[255] % sizeof words);
    }
    return 0;
}
#endif
