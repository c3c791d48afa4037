/* Filters, masks and samples rows in host memory, and checks the answers.
 *
 * cc -I crates/capi/include crates/capi/examples/sample.c -L target/release -lqrita_capi -o sample
 * ./sample [BACKEND]
 *
 * Exit code: 0 if all answers are right, 1 if not. */

#include "qrita.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void check(int is_right, const char *what) {
    if (!is_right) {
        printf("wrong: %s\n", what);
        failures++;
    }
}

/* Ends the program where a call fails that must not. */
static int done(QritaCode code) {
    if (code == QRITA_CODE_OK) return 1;
    printf("error %d: %s\n", (int)code, qrita_message());
    failures++;
    return 0;
}

int main(int argc, char **argv) {
    struct QritaSampler *sampler = NULL;
    struct QritaParams params;
    struct QritaOutputs outputs;
    /* Two rows of four logits, padded to five. */
    float data[9] = {0, 3, 2, 3, 99, 1, -1, 5, 0.5f};
    const struct QritaLogits logits = {data, QRITA_F32, 2, 4, 5};

    if (qrita_abi() != QRITA_ABI) {
        printf("the library is of another ABI than its header\n");
        return 1;
    }
    if (!done(qrita_create(argc > 1 ? argv[1] : "cpu", 1, &sampler))) return 1;
    printf("%s\n", qrita_description(sampler));

    /* Filter: the kept tokens in order. Ties go to the lowest id, as in a stable sort. */
    uint32_t kept[2], ids[4];
    float kept_logits[4], logprobs[4];
    done(qrita_params_init(&params));
    done(qrita_outputs_init(&outputs));
    params.top_k = 2;
    outputs.kept = kept;
    outputs.capacity = 2;
    outputs.candidate_ids = ids;
    outputs.candidate_logits = kept_logits;
    outputs.candidate_logprobs = logprobs;
    done(qrita_run(sampler, &logits, &params, &outputs));
    check(kept[0] == 2 && kept[1] == 2, "two tokens of each row are kept");
    check(ids[0] == 1 && ids[1] == 3 && ids[2] == 2 && ids[3] == 0, "ids in order");
    check(kept_logits[0] == 3 && kept_logits[3] == 1, "their logits");
    check(logprobs[0] == logprobs[1] && fabsf(logprobs[0] + 0.693147f) < 1e-6f, "half each");

    /* Sample: each row with parameters of its own, three draws. Temperature 0 is greedy. */
    const float temperatures[2] = {0, 1};
    const uint64_t seeds[2] = {17, 18};
    uint32_t tokens[6], rank[6], again[6];
    done(qrita_params_init(&params));
    done(qrita_outputs_init(&outputs));
    params.top_p = 0.999f;
    params.draws = 3;
    params.temperatures = temperatures;
    params.seeds = seeds;
    outputs.token = tokens;
    outputs.rank = rank;
    done(qrita_run(sampler, &logits, &params, &outputs));
    check(tokens[0] == 1 && tokens[1] == 1 && tokens[2] == 1 && rank[0] == 0, "greedy: the first maximum");
    check(tokens[3] < 4 && rank[3] < 4, "a token of the other row");
    outputs.token = again;
    done(qrita_run(sampler, &logits, &params, &outputs));
    check(memcmp(tokens, again, sizeof tokens) == 0, "the same seeds, the same tokens");

    /* What is wrong is told, and nothing is written. */
    const float negative[2] = {1, -1};
    const float before[9] = {0, 3, 2, 3, 99, 1, -1, 5, 0.5f};
    params.temperatures = negative;
    outputs.mask = 1;
    check(qrita_run(sampler, &logits, &params, &outputs) == QRITA_CODE_PARAM, "a negative temperature is refused");
    check(strcmp(qrita_message(), "temperature is -1 in row 1: it must be finite and at least 0") == 0, qrita_message());
    check(memcmp(data, before, sizeof data) == 0, "the logits are as they were");
    params.abi = 12345;
    check(qrita_run(sampler, &logits, &params, &outputs) == QRITA_CODE_ABI, "another ABI is refused");
    check(qrita_run(sampler, NULL, &params, &outputs) == QRITA_CODE_POINTER, "null is refused");
    check(qrita_create("abacus", 0, &sampler) == QRITA_CODE_UNSUPPORTED, "a backend that there is not");

    /* Mask in place: the padding is not touched. */
    done(qrita_params_init(&params));
    done(qrita_outputs_init(&outputs));
    params.top_k = 1;
    outputs.mask = 1;
    done(qrita_run(sampler, &logits, &params, &outputs));
    for (int i = 0; i < 9; i++) {
        int is_kept = i == 1 || i == 4 || i == 7;
        check(is_kept ? data[i] == before[i] : isinf(data[i]) && data[i] < 0, "masked");
    }

    qrita_destroy(sampler);
    if (failures == 0) printf("all answers are right\n");
    return failures > 0;
}
