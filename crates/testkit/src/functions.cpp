// A value a thread, by the functions of the device source that decide; `functions.rs` compares them with core's. It
// follows the device source, whose names it uses.

// `Call` of functions.rs.
struct FunctionsCall {
    u32 function, count;
    // The arguments of value `i` are `first + i · step` and `second`, or the three in `inputs` where there are such.
    u64 first, step, second;
    const u64 *inputs;
    u64 *outputs;
};

KERNEL functions(ARGUMENT(FunctionsCall) call) {
    load_table();
    block_sync();
    u32 i = block_index() * thread_count() + thread_index();
    if (i >= call.count) return;
    u64 a = call.first + i * call.step, b = call.second, c = 0;
    if (call.inputs) {
        const u64 *inputs = call.inputs + 3 * (u64)i;
        a = inputs[0], b = inputs[1], c = inputs[2];
    }
    u64 value = 0;
    switch (call.function) {
    case 0: value = weight_of((u32)a); break;
    case 1: value = float_bits(logprob_of((u32)a, b)); break;
    case 2: value = ln_mass(a); break;
    case 3: value = need_of(bits_float((u32)a), b); break;
    case 4: value = random_bits(a, b, (u32)c, (u32)(c >> 32)); break;
    case 5: value = weight_at(scale_of(bits_float((u32)(a >> 32)), bits_float((u32)b)), bits_float((u32)a)); break;
    case 6: {
        float y = bits_float((u32)a), greatest = bits_float((u32)(a >> 32));
        float max = bits_float((u32)b), temperature = bits_float((u32)(b >> 32));
        double term = rest_term(y, greatest, div_rn(LOG2_OF_E, temperature));
        Rest rest = bound_rest(term, greatest, max, temperature, 1);
        value = (u64)rest.is_known << 1 | (rest.least <= c && c <= rest.most);
        break;
    }
    case 7: value = float_bits(probability_of(a, b)); break;
    case 8: value = accepts(a, Share{b, c}, Share{c >> 7, b}); break;
    case 9: {
        Wide excess = excess_of(Share{a, b}, Share{b, c});
        value = excess.low + 3 * excess.high;
        break;
    }
    case 10: {
        Wide upper = upper_of(a, sum_of(Wide{b, c}, Wide{c, b}));
        value = upper.low + 3 * upper.high;
        break;
    }
    }
    call.outputs[i] = value;
}
