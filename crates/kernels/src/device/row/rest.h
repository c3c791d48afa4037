// The mass of the logits that are not gathered, from a floating-point sum, with a bound of its error.
//
// The bound is for temperatures between 1e-30 and 1e37. Above, y − M can overflow where D is small, and the contract's weight
// is 0 of a logit that weighs; below, c does.
//
// Let D = (M − y)/T be the distance of a logit, exactly, R the sample's greatest logit, G = (M − R)/T ≥ 0, u = 2^-24. The
// term summed is 2^x with x = (y − R)·c, c = log2(e)/T: a subtraction, a product, and a division and a constant in c, each
// rounded, make a relative error of 4u in x, and of 4u·D in the term, as R − y ≤ M − y. The factor that brings the sum from R to
// M errs by 4u·G in the same way. The weight of the contract errs by 2u·D in its own d. A weight is 0 from D = 29.2 on: up
// to there 6u·D ≤ 176u. The hardware's exponential errs by 2^-22 a time; at most 32 terms are added in floats, all
// else in doubles: 32u. Together below 2^-16 + G·2^-21. A weight is rounded to a unit, and a term beyond the last weight is less than
// a unit: 2 units a logit.

#define LOG2_OF_E 1.44269504f

// In units of a weight's: between `least` and `most`.
struct Rest {
    u64 least, most;
    bool is_known;
};

// The term of a logit, with R and c; NaN of NaN.
DEVICE float rest_term(float y, float greatest, float c) { return exp2_hint(mul_rn(sub_rn(y, greatest), c)); }

// The mass of some of `vocab` logits, from the sum of their terms.
DEVICE Rest bound_rest(double sum, float greatest, float max, float temperature, u32 vocab) {
    if (!(temperature > 1e-30f && temperature < 1e37f)) return Rest{0, 0, false};
    float c = div_rn(LOG2_OF_E, temperature);
    float below = sub_rn(greatest, max);
    // Rounded up by more than the division's error.
    double g = (double)div_rn(-below, temperature) * (1.0 + 1.0 / 1048576.0);
    double mass = sum * (double)exp2_hint(mul_rn(below, c)) * (double)WEIGHT_ONE;
    double error = 1.0 / 65536.0 + g / 2097152.0;
    double slack = 2.0 * (double)vocab;
    // Far below the maximum all of it is less than the slack; NaN is a row's own, or of a temperature near 0.
    if (!(g < 1024.0)) return g >= 1024.0 ? Rest{0, (u64)slack, true} : Rest{0, 0, false};
    if (!(mass <= 9.3e18)) return Rest{0, 0, false};
    double least = mass * (1.0 - error) - slack, most = mass * (1.0 + error) + slack + 1.0;
    return Rest{least > 0.0 ? (u64)least : 0, (u64)most, true};
}
