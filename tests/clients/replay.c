/* Encode the cases of standard input and compare: for builds with sanitizers, which Python cannot load.
 *
 * A case is an sstq_params, its schedule and codebook (SSTQ), group (uint32_t), client, four words and the message
 * (uint64_t each), and the vector. All memory is exactly as large as it has to be. */
#include "sstq.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *read_array(size_t count, size_t size)
{
    void *read = malloc(count * size);
    if (!read || fread(read, size, count, stdin) != count) {
        fprintf(stderr, "the input ends within a case\n");
        exit(2);
    }
    return read;
}

static int hand_out(void *context, unsigned char *bytes, size_t size)
{
    memcpy(bytes, context, size);
    return 0;
}

int main(void)
{
    unsigned long cases = 0, different = 0;
    sstq_params p;
    while (fread(&p, sizeof p, 1, stdin) == 1) {
        float *schedule = NULL, *x;
        double *codebook = NULL;
        uint32_t *group;
        uint64_t *numbers, message = 0;
        sstq_buffers buffers;
        sstq_error error;
        if (p.mechanism == SSTQ_FLAT) {
            schedule = read_array(p.steps, 3 * sizeof *schedule);
            codebook = read_array((size_t)1 << p.bits, sizeof *codebook);
        }
        p.schedule = (const float(*)[3])schedule;
        p.codebook = codebook;
        p.digest = NULL;
        group = read_array(1, sizeof *group);
        numbers = read_array(6, sizeof *numbers);
        x = read_array(p.dim, sizeof *x);
        if (sstq_sizes_of(&p, &buffers.sizes))
            return 2;
        buffers.floats = malloc(buffers.sizes.floats * sizeof *buffers.floats);
        buffers.words = malloc(buffers.sizes.words * sizeof *buffers.words);
        error = sstq_encode(&p, x, p.dim, *group, numbers[0], hand_out, numbers + 1, &buffers, &message);
        different += error || message != numbers[5];
        cases++;
        free(schedule);
        free(codebook);
        free(group);
        free(numbers);
        free(x);
        free(buffers.floats);
        free(buffers.words);
    }
    printf("%lu cases, %lu different\n", cases, different);
    return different > 0;
}
