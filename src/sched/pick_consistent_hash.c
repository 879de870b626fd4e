/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file Pick consistent_hash: weighted rendezvous hashing with bounded load.
 *
 * Every endpoint draws a number u in (0, 1) from its address and the session key; the lowest -log2(u) / weight is the
 * session's home (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005). Nothing but address, weight
 * and key enters, so all processes agree, and a join or leave moves only what the newcomer wins or the leaver had.
 * An endpoint that would go above bound x its share of the load is passed over (Mirrokni, Thorup, Zadimoghaddam 2016).
 * Integers only, so all machines agree as well. Cost: one multiplication chain per row; no ring to rebuild.
 */
#include "sched/bound.h"

/* log2(1 + i/256) in Q32. */
static const uint64_t LOG2[257] = {
    UINT64_C(0),          UINT64_C(24157255),   UINT64_C(48220695),   UINT64_C(72191046),
    UINT64_C(96069025),   UINT64_C(119855343),  UINT64_C(143550699),  UINT64_C(167155786),
    UINT64_C(190671291),  UINT64_C(214097890),  UINT64_C(237436253),  UINT64_C(260687042),
    UINT64_C(283850912),  UINT64_C(306928510),  UINT64_C(329920477),  UINT64_C(352827446),
    UINT64_C(375650043),  UINT64_C(398388887),  UINT64_C(421044590),  UINT64_C(443617759),
    UINT64_C(466108993),  UINT64_C(488518883),  UINT64_C(510848017),  UINT64_C(533096975),
    UINT64_C(555266330),  UINT64_C(577356649),  UINT64_C(599368495),  UINT64_C(621302422),
    UINT64_C(643158981),  UINT64_C(664938715),  UINT64_C(686642163),  UINT64_C(708269857),
    UINT64_C(729822324),  UINT64_C(751300086),  UINT64_C(772703658),  UINT64_C(794033552),
    UINT64_C(815290272),  UINT64_C(836474320),  UINT64_C(857586191),  UINT64_C(878626374),
    UINT64_C(899595355),  UINT64_C(920493615),  UINT64_C(941321628),  UINT64_C(962079865),
    UINT64_C(982768792),  UINT64_C(1003388871), UINT64_C(1023940559), UINT64_C(1044424306),
    UINT64_C(1064840562), UINT64_C(1085189769), UINT64_C(1105472367), UINT64_C(1125688789),
    UINT64_C(1145839467), UINT64_C(1165924827), UINT64_C(1185945290), UINT64_C(1205901275),
    UINT64_C(1225793196), UINT64_C(1245621463), UINT64_C(1265386481), UINT64_C(1285088654),
    UINT64_C(1304728379), UINT64_C(1324306051), UINT64_C(1343822060), UINT64_C(1363276795),
    UINT64_C(1382670639), UINT64_C(1402003972), UINT64_C(1421277169), UINT64_C(1440490605),
    UINT64_C(1459644648), UINT64_C(1478739665), UINT64_C(1497776018), UINT64_C(1516754066),
    UINT64_C(1535674166), UINT64_C(1554536671), UINT64_C(1573341930), UINT64_C(1592090289),
    UINT64_C(1610782092), UINT64_C(1629417679), UINT64_C(1647997388), UINT64_C(1666521551),
    UINT64_C(1684990500), UINT64_C(1703404565), UINT64_C(1721764068), UINT64_C(1740069334),
    UINT64_C(1758320682), UINT64_C(1776518428), UINT64_C(1794662886), UINT64_C(1812754368),
    UINT64_C(1830793181), UINT64_C(1848779632), UINT64_C(1866714024), UINT64_C(1884596657),
    UINT64_C(1902427829), UINT64_C(1920207835), UINT64_C(1937936969), UINT64_C(1955615520),
    UINT64_C(1973243777), UINT64_C(1990822024), UINT64_C(2008350545), UINT64_C(2025829620),
    UINT64_C(2043259528), UINT64_C(2060640543), UINT64_C(2077972941), UINT64_C(2095256991),
    UINT64_C(2112492963), UINT64_C(2129681124), UINT64_C(2146821738), UINT64_C(2163915068),
    UINT64_C(2180961373), UINT64_C(2197960912), UINT64_C(2214913940), UINT64_C(2231820712),
    UINT64_C(2248681479), UINT64_C(2265496490), UINT64_C(2282265995), UINT64_C(2298990237),
    UINT64_C(2315669461), UINT64_C(2332303909), UINT64_C(2348893820), UINT64_C(2365439432),
    UINT64_C(2381940981), UINT64_C(2398398701), UINT64_C(2414812824), UINT64_C(2431183582),
    UINT64_C(2447511201), UINT64_C(2463795910), UINT64_C(2480037932), UINT64_C(2496237492),
    UINT64_C(2512394810), UINT64_C(2528510107), UINT64_C(2544583599), UINT64_C(2560615505),
    UINT64_C(2576606038), UINT64_C(2592555411), UINT64_C(2608463835), UINT64_C(2624331521),
    UINT64_C(2640158677), UINT64_C(2655945509), UINT64_C(2671692221), UINT64_C(2687399018),
    UINT64_C(2703066101), UINT64_C(2718693670), UINT64_C(2734281925), UINT64_C(2749831063),
    UINT64_C(2765341278), UINT64_C(2780812767), UINT64_C(2796245722), UINT64_C(2811640333),
    UINT64_C(2826996792), UINT64_C(2842315287), UINT64_C(2857596005), UINT64_C(2872839132),
    UINT64_C(2888044853), UINT64_C(2903213350), UINT64_C(2918344806), UINT64_C(2933439400),
    UINT64_C(2948497313), UINT64_C(2963518722), UINT64_C(2978503803), UINT64_C(2993452732),
    UINT64_C(3008365682), UINT64_C(3023242827), UINT64_C(3038084339), UINT64_C(3052890387),
    UINT64_C(3067661140), UINT64_C(3082396766), UINT64_C(3097097433), UINT64_C(3111763305),
    UINT64_C(3126394546), UINT64_C(3140991321), UINT64_C(3155553791), UINT64_C(3170082117),
    UINT64_C(3184576458), UINT64_C(3199036973), UINT64_C(3213463820), UINT64_C(3227857155),
    UINT64_C(3242217134), UINT64_C(3256543910), UINT64_C(3270837638), UINT64_C(3285098468),
    UINT64_C(3299326552), UINT64_C(3313522041), UINT64_C(3327685082), UINT64_C(3341815825),
    UINT64_C(3355914416), UINT64_C(3369981001), UINT64_C(3384015725), UINT64_C(3398018732),
    UINT64_C(3411990165), UINT64_C(3425930167), UINT64_C(3439838878), UINT64_C(3453716438),
    UINT64_C(3467562987), UINT64_C(3481378662), UINT64_C(3495163602), UINT64_C(3508917943),
    UINT64_C(3522641820), UINT64_C(3536335369), UINT64_C(3549998721), UINT64_C(3563632012),
    UINT64_C(3577235372), UINT64_C(3590808933), UINT64_C(3604352825), UINT64_C(3617867177),
    UINT64_C(3631352118), UINT64_C(3644807776), UINT64_C(3658234277), UINT64_C(3671631748),
    UINT64_C(3685000315), UINT64_C(3698340100), UINT64_C(3711651229), UINT64_C(3724933824),
    UINT64_C(3738188006), UINT64_C(3751413898), UINT64_C(3764611620), UINT64_C(3777781291),
    UINT64_C(3790923031), UINT64_C(3804036958), UINT64_C(3817123189), UINT64_C(3830181840),
    UINT64_C(3843213029), UINT64_C(3856216870), UINT64_C(3869193478), UINT64_C(3882142967),
    UINT64_C(3895065449), UINT64_C(3907961038), UINT64_C(3920829844), UINT64_C(3933671979),
    UINT64_C(3946487554), UINT64_C(3959276677), UINT64_C(3972039458), UINT64_C(3984776005),
    UINT64_C(3997486426), UINT64_C(4010170828), UINT64_C(4022829316), UINT64_C(4035461997),
    UINT64_C(4048068976), UINT64_C(4060650357), UINT64_C(4073206244), UINT64_C(4085736740),
    UINT64_C(4098241947), UINT64_C(4110721967), UINT64_C(4123176902), UINT64_C(4135606852),
    UINT64_C(4148011918), UINT64_C(4160392197), UINT64_C(4172747791), UINT64_C(4185078796),
    UINT64_C(4197385310), UINT64_C(4209667431), UINT64_C(4221925255), UINT64_C(4234158878),
    UINT64_C(4246368396), UINT64_C(4258553902), UINT64_C(4270715492), UINT64_C(4282853259),
    UINT64_C(4294967296),
};

/* -log2(u / 2^64) in Q32, from 0 to 64; linear between the table's points. */
static uint64_t neg_log2(uint64_t u)
{
    if (u == 0)
        u = 1;
    unsigned zeros = (unsigned)__builtin_clzll(u);
    uint64_t fraction = (u << zeros) << 1; /* behind the leading one */
    unsigned i = (unsigned)(fraction >> 56);
    uint64_t rest = (fraction >> 24) & UINT32_MAX;
    uint64_t log = LOG2[i] + (((LOG2[i + 1] - LOG2[i]) * rest) >> 32);

    return ((uint64_t)(zeros + 1) << 32) - log;
}

static uint64_t draw(uint64_t endpoint, uint64_t key)
{
    struct prng r = {endpoint ^ (key * UINT64_C(0x9E3779B97F4A7C15))};

    return prng_next(&r);
}

static uint32_t by_key(const struct sched_view *v,
                       const uint32_t *fit,
                       uint32_t n,
                       uint64_t key,
                       const struct sched_cost *costs,
                       struct sched_state *state,
                       uint64_t seed)
{
    struct sched_bound bound = sched_bound_of(v, fit, n);
    struct sched_cost low = {1, 0};
    uint32_t home = UINT32_MAX;

    for (uint32_t i = 0; i < n; i++) {
        const struct sched_candidate *c = &v->candidates[fit[i]];
        struct sched_cost cost = {neg_log2(draw(c->hash, key)), c->weight};
        if (home != UINT32_MAX && !sched_cost_less(cost, low))
            continue;
        if (sched_below_bound(&bound, v, fit[i])) {
            low = cost;
            home = i;
        }
    }
    return home == UINT32_MAX ? sched_pick_lowest(v, fit, n, costs, state, seed) : home;
}

uint32_t sched_pick_consistent_hash(const struct sched_view *v,
                                    const uint32_t *fit,
                                    uint32_t n,
                                    const struct sched_cost *costs,
                                    struct sched_state *state,
                                    uint64_t seed)
{
    if (!v->features->has_session)
        return sched_pick_lowest(v, fit, n, costs, state, seed);
    return by_key(v, fit, n, v->features->session, costs, state, seed);
}

/* KubeAI's prefix hash, by the first block of the prompt instead of its first 100 characters. */
uint32_t sched_pick_prefix_hash(const struct sched_view *v,
                                const uint32_t *fit,
                                uint32_t n,
                                const struct sched_cost *costs,
                                struct sched_state *state,
                                uint64_t seed)
{
    if (!v->features->prefix_key)
        return sched_pick_lowest(v, fit, n, costs, state, seed);
    return by_key(v, fit, n, v->features->prefix_key, costs, state, seed);
}
